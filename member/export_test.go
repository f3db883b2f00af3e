package member

// Terms are what a Member keeps to itself: tests feed them by hand.
type Terms = terms

// NewTerms makes some without a Member.
var NewTerms = newTerms

// Terms returns those of a Member.
func (m *Member) Terms() *Terms { return m.terms }

// Connections tells the connections apart that new requests of a Member take.
func (m *Member) Connections() any {
	current, _ := m.connections.get()
	return current
}

// SetNamespaceFile has Members look for their Pod's namespace elsewhere, until restore.
func SetNamespaceFile(path string) (restore func()) {
	was := namespaceFile
	namespaceFile = path
	return func() { namespaceFile = was }
}
