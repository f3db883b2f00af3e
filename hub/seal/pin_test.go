package seal

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWhatProvesAPin(t *testing.T) {
	key, other := Key(bytes.Repeat([]byte{1}, keySize)), Key(bytes.Repeat([]byte{2}, keySize))
	proof := Pin(key, "fleet", "east", "uid")
	for name, test := range map[string]struct {
		key                        Key
		fleet, cluster, uid, proof string
		want                       bool
	}{
		"the hub's own does":                 {key, "fleet", "east", "uid", proof, true},
		"that of another Cluster does not":   {key, "fleet", "west", "uid", proof, false},
		"that of another fleet does not":     {key, "other", "east", "uid", proof, false},
		"that of another UID does not":       {key, "fleet", "east", "another", proof, false},
		"that under another key does not":    {other, "fleet", "east", "uid", proof, false},
		"without a key nothing does":         {nil, "fleet", "east", "uid", Pin(nil, "fleet", "east", "uid"), false},
		"no proof is none":                   {key, "fleet", "east", "uid", "", false},
		"names that run together are others": {key, "fleete", "ast", "uid", proof, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsPin(test.key, test.fleet, test.cluster, test.uid, test.proof); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestOfTheSealOnlyAKeyProvesPins(t *testing.T) {
	key := bytes.Repeat([]byte{1}, keySize)
	full := &corev1.Secret{Data: map[string][]byte{dataKey: key, dataLargestDuration: []byte("15")}}
	if !bytes.Equal(KeyOf(full), key) {
		t.Error("the key is none")
	}
	full.Data[dataKey] = key[1:]
	if KeyOf(full) != nil {
		t.Error("a key of the wrong length is one")
	}
}
