package main

// explained says of generated mutants, by their names, why no test can tell them from the
// code. One that a test kills does not belong here, nor one that is not generated any more:
// both are errors.
var explained = map[string]string{}
