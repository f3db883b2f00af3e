package member

// Terms gives tests what a Member keeps to itself: the way to feed it by hand.
func (m *Member) Terms() *Terms { return m.terms }

// Line tells the connections apart that new requests of a Member take.
func (m *Member) Line() any { return m.link.current() }

// SetNamespaceFile has Members look for their Pod's namespace elsewhere, until restore.
func SetNamespaceFile(path string) (restore func()) {
	was := namespaceFile
	namespaceFile = path
	return func() { namespaceFile = was }
}
