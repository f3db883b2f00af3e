package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// spinVariable marks a process that must not begin again.
const spinVariable = "LEASECAST_TEST_SPINS"

func TestMain(m *testing.M) {
	if os.Getenv(spinVariable) != "" {
		fmt.Println("it has begun again")
		os.Exit(5)
	}
	os.Exit(m.Run())
}

func TestAProgramThatRanForAMomentDoesNotBeginAgain(t *testing.T) {
	t.Setenv(spinVariable, "1")
	if err := beginAgain(leastRun - 1); err == nil || !strings.Contains(err.Error(), "it ran for") {
		t.Error(err)
	}
}
