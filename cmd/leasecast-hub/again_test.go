package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// peerVariable makes the test binary play the hub that begins again. It holds the address of the peer to connect to.
const peerVariable = "LEASECAST_TEST_PEER"

// spinVariable marks a process that must not begin again.
const spinVariable = "LEASECAST_TEST_SPINS"

func TestMain(m *testing.M) {
	if os.Getenv(spinVariable) != "" {
		fmt.Println("it has begun again")
		os.Exit(5)
	}
	if peer := os.Getenv(peerVariable); peer != "" {
		beginTwice(peer)
	}
	os.Exit(m.Run())
}

// beginTwice connects to the peer, sends it the process's ID, and begins again while it still writes. The new program
// does the same, and ends when the peer sends a dot.
func beginTwice(peer string) {
	c, err := net.Dial("tcp", peer)
	if err == nil {
		_, err = fmt.Fprintf(c, "%d %s\n", os.Getpid(), strings.Join(os.Args, " "))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	if word, _ := io.ReadAll(io.LimitReader(c, 1)); string(word) == "." {
		os.Exit(0)
	}
	go func() {
		for {
			_, _ = io.WriteString(c, "on\n")
		}
	}()
	fmt.Println(beginAgain(leastRun))
	os.Exit(4)
}

func TestTheProgramBeginsAgainInPlace(t *testing.T) {
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-some", "argument")
	cmd.Env = append(os.Environ(), peerVariable+"="+peer.Addr().String())
	out := &strings.Builder{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d %s -some argument", cmd.Process.Pid, os.Args[0])
	for turn, word := range []string{"!", "."} {
		c, err := peer.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, word); err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(c) // it ends although the process lives on
		if who, _, _ := strings.Cut(string(said), "\n"); who != want {
			t.Errorf("process %d said %q, want %q (%v)", turn, who, want, err)
		}
		_ = c.Close()
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestAProgramThatRanForAMomentDoesNotBeginAgain(t *testing.T) {
	t.Setenv(spinVariable, "1")
	if err := beginAgain(leastRun - 1); err == nil || !strings.Contains(err.Error(), "it ran for") {
		t.Error(err)
	}
}
