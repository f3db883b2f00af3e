package hub

import "strings"

// lostElection is controller-runtime's message when its elector gave up. It exports no error for that.
const lostElection = "leader election lost"

// LostElection reports whether err, returned by a manager's Start, means that this process has lost the hub's election.
// Nothing in its memory may be used any more. A new process may stand for election at once.
func LostElection(err error) bool { return err != nil && strings.Contains(err.Error(), lostElection) }
