package member

// Terms are the terms of a Member, which tests feed by hand.
type Terms = terms

// NewTerms returns terms without a Member.
var NewTerms = newTerms

// Terms returns the terms of a Member.
func (m *Member) Terms() *Terms { return m.terms }

// Connections returns the connections of new requests, to compare them.
func (m *Member) Connections() any {
	current, _ := m.connections.get()
	return current
}

// SetNamespaceFile replaces the file with the namespace of the Pod, until restore.
func SetNamespaceFile(path string) (restore func()) {
	was := namespaceFile
	namespaceFile = path
	return func() { namespaceFile = was }
}
