package member

// Terms gives tests what a Member keeps to itself: the way to feed it by hand.
func (m *Member) Terms() *Terms { return m.terms }
