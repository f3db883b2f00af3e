package hub

import "strings"

// lostElection is what controller-runtime says when its elector gave up. It has no variable for that.
const lostElection = "leader election lost"

// LostElection reports whether the error of a manager's Start says that this process has lost the hub's election. Nothing
// that it knew may be used any more. A new process may stand for election at once.
func LostElection(err error) bool { return err != nil && strings.Contains(err.Error(), lostElection) }
