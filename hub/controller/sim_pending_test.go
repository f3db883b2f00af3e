package controller

// pendingWorlds are those that fail.
var pendingWorlds = []special{rivalsWorld, movesWorld, invalidWorld, unfenceableWorld, otherHubWorld, rebuiltWorld, refusalWorld}

// locksAreOpened: a fence lets nobody take a lock that the leader's Lease does not list.
const locksAreOpened = true
