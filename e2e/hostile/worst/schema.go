package worst

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// field is a field of a message.
type field struct {
	name     string // in JSON; empty: its own fields stand in its place there
	number   int    // in protobuf; zero: it has none
	index    int    // of the Go struct
	repeated bool
	of       reflect.Type // of the field, or of one element: never a pointer
}

// isMessage reports whether a type is a struct that is encoded as a message. One that decodes itself is a scalar.
func isMessage(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

func isString(t reflect.Type) bool { return t.Kind() == reflect.String }

func isMap(t reflect.Type) bool {
	return t.Kind() == reflect.Map && isString(t.Key()) && isString(t.Elem())
}

// fields are those of a message.
func fields(message reflect.Type) (all []field) {
	for i := range message.NumField() {
		tag := message.Field(i).Tag
		name, rest, _ := strings.Cut(tag.Get("json"), ",")
		f := field{name: name, index: i, of: message.Field(i).Type}
		if name == "-" || name == "" && !strings.Contains(rest, "inline") {
			continue
		}
		if parts := strings.Split(tag.Get("protobuf"), ","); len(parts) > 1 {
			f.number, _ = strconv.Atoi(parts[1]) // one that is wrong stays zero
		}
		f.of = pointed(f.of)
		if f.of.Kind() == reflect.Slice && f.of.Elem().Kind() != reflect.Uint8 && !hasProtobuf(f.of) {
			f.repeated, f.of = true, pointed(f.of.Elem())
		}
		all = append(all, f)
	}
	return all
}

func pointed(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// path leads from a message to one of the fields in it.
type path []field

func (p path) last() field { return p[len(p)-1] }

func (p path) String() string {
	var names []string
	for _, f := range p {
		if f.name != "" {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, ".")
}

// walk calls see with the path to each field of a message, each type once on each path.
func walk(message reflect.Type, see func(path)) {
	var from func(p path, message reflect.Type, on []reflect.Type)
	from = func(p path, message reflect.Type, on []reflect.Type) {
		for _, f := range fields(message) {
			q := append(slices.Clip(p), f)
			see(q)
			if isMessage(f.of) && !slices.Contains(on, f.of) {
				from(q, f.of, append(slices.Clip(on), f.of))
			}
		}
	}
	from(nil, message, []reflect.Type{message})
}

// heaviest returns the paths to the repeated messages that take most memory for each byte, the worst first, each type
// once.
func heaviest(message reflect.Type, most int) (worst []path) {
	ratios := map[reflect.Type]float64{}
	walk(message, func(p path) {
		f := p.last()
		if _, seen := ratios[f.of]; f.repeated && isMessage(f.of) && !seen {
			worst, ratios[f.of] = append(worst, slices.Clone(p)), dense(f.of).ratio()
		}
	})
	slices.SortStableFunc(worst, func(a, b path) int { return -cmp.Compare(ratios[a.last().of], ratios[b.last().of]) })
	return worst[:min(most, len(worst))]
}

// element is a message with the children that make it take most memory for each byte.
type element struct {
	bytes    int // of memory
	cost     int // bytes of protobuf
	children []field
}

func (e element) ratio() float64 { return float64(e.bytes) / float64(e.cost) }

// dense is the element of a type that takes most memory for each byte: empty, or with those children that are worse
// than it.
func dense(message reflect.Type) element { return denser(message, nil) }

func denser(message reflect.Type, on []reflect.Type) element {
	e := element{bytes: int(message.Size()), cost: 2} // a tag and a length
	type child struct {
		field
		element
	}
	var children []child
	for _, f := range fields(message) {
		apart := f.repeated || pointer(message, f)
		if apart && f.name != "" && f.number > 0 && isMessage(f.of) && !slices.Contains(on, f.of) {
			children = append(children, child{f, denser(f.of, append(slices.Clip(on), message, f.of))})
		}
	}
	slices.SortFunc(children, func(a, b child) int { return -cmp.Compare(a.ratio(), b.ratio()) })
	for _, c := range children {
		if c.ratio() > e.ratio() {
			e.bytes, e.cost, e.children = e.bytes+c.bytes, e.cost+c.cost, append(e.children, c.field)
		}
	}
	return e
}

// pointer reports whether a field is apart from its struct.
func pointer(message reflect.Type, f field) bool {
	return message.Field(f.index).Type.Kind() == reflect.Pointer
}
