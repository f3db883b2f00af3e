package transport

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// What is read of members, by the numbers of the fields in generated.proto of k8s.io/api and k8s.io/apimachinery. Who
// uses another field adds it here. Until then it is empty, and a kind that is missing is not asked for.

const (
	// nameText bounds names and the like, mark the texts that say little, and words those for people.
	nameText, mark, words = 320, 64, 1 << 10
	// annotation bounds the text of an annotation: the longest ones of registrations have 96 KiB (wire.maxList).
	annotation = 128 << 10
)

func text(bytes int) field                { return field{text: bytes} }
func texts(times, bytes int) field        { return field{text: bytes, times: times} }
func one(of message) field                { return field{of: of} }
func several(times int, of message) field { return field{of: of, times: times} }

// entries are those of a map, and entry is the one with a key.
func entries(times, text int) field {
	return several(times, message{1: {text: nameText}, 2: {text: text}})
}
func entry(key string) field { return field{of: entries(1, nameText).of, key: key} }

// with returns a message with more fields.
func with(m, more message) message {
	all := maps.Clone(m)
	maps.Copy(all, more)
	return all
}

// object is an object with these fields beside its metadata.
func object(metadata, fields message) message { return with(message{1: one(metadata)}, fields) }

var (
	integer = field{}
	// instant is a Time or a MicroTime.
	instant = one(message{1: integer, 2: integer})
	// identity is what is kept of the metadata of every object: name, namespace, uid, resourceVersion, generation, and the
	// label of what resource sets keep.
	identity = message{
		1: text(nameText), 3: text(nameText), 5: text(mark), 6: text(mark), 7: integer, 11: entry(v1alpha1.SetLabel),
	}
	// nameOnly is what is left of an object that exceeds a bound. A Namespace keeps the label that names it.
	nameOnly = message{1: one(with(identity, message{9: instant, 11: entry(corev1.LabelMetadataName)}))}
	// described is the metadata of objects that are written back: what others have put there stays.
	described = with(identity, message{
		8: instant, 9: instant, 10: integer, // creationTimestamp, deletionTimestamp, deletionGracePeriodSeconds
		11: entries(128, nameText), 12: entries(64, annotation),
		13: several(16, message{ // ownerReferences
			1: text(nameText), 3: text(nameText), 4: text(mark), 5: text(nameText), 6: integer, 7: integer,
		}),
		14: texts(32, nameText),
	})
	listMeta = message{2: text(mark), 3: text(8 << 10), 4: integer} // resourceVersion, continue, remainingItemCount
)

var ofStatus = message{
	2: text(mark), 3: text(maxText), 4: text(mark), 6: integer, // status, message, reason, code
	// details.causes: type, message and field
	5: one(message{4: several(MaxCauses, message{1: text(mark), 2: text(nameText), 3: text(nameText)})}),
}

var (
	// labelled is the metadata of a Namespace. The annotation is in the bookmark that ends a list which is sent as a
	// watch.
	labelled = with(identity, message{
		9: instant, 11: entries(128, nameText), 12: entry(metav1.InitialEventsAnnotationKey),
	})
	ofNamespace = object(labelled, message{3: one(message{1: text(mark)})}) // status.phase
	// holds is the spec of a Lease: holderIdentity, leaseDurationSeconds, acquireTime, renewTime, leaseTransitions,
	// strategy, preferredHolder.
	holds = message{
		1: text(annotation), 2: integer, 3: instant, 4: instant, 5: integer, 6: text(mark), 7: text(nameText),
	}
	ofLease = object(described, message{2: one(holds)})

	ofCronJob = object(with(identity, message{8: instant}), message{
		2: one(message{5: one(message{1: one(message{11: entries(64, nameText)})})}), // spec.jobTemplate.metadata.labels
		3: one(message{4: instant}),                                                  // status.lastScheduleTime
	})
	onlyIdentity = object(identity, nil)
	ofReview     = message{3: one(message{1: integer})} // status.allowed
	// onlyDescribed is for objects that are compared by their metadata, and replaced as a whole.
	onlyDescribed = object(described, nil)
)
