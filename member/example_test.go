package member_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/membertest"
)

// A program makes one Member, and starts it in every replica. Nothing is led before it has heard who leads.
func ExampleNew() {
	cfg := &rest.Config{Host: "https://127.0.0.1:1"} // in a program: rest.InClusterConfig()
	m, err := member.New(cfg, member.Options{Namespaces: []string{"shop"}, Logger: logr.Discard()})
	if err != nil {
		panic(err)
	}
	fmt.Println("leads:", m.State("shop").Leads)
	fmt.Println(m.State("shop").Why)
	_, err = member.New(cfg, member.Options{Namespaces: []string{"Shop"}})
	fmt.Println("a mistake of the program:", errors.Is(err, member.ErrMisused))
	// Output:
	// leads: false
	// the Member is not started: add it to the manager by mgr.Add, or call Start
	// a mistake of the program: true
}

// Wrap the configuration before any client is made of it. A write whose term is over is not sent.
func ExampleCapWrites() {
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	cfg.Wrap(member.CapWrites)
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		panic(err)
	}
	fake := membertest.New()
	fake.Promote("shop")
	ctx, done, err := fake.Context(context.Background(), "shop")
	if err != nil {
		panic(err)
	}
	defer done()
	fake.Expire()
	err = clients.CoreV1().ConfigMaps("shop").Delete(context.WithoutCancel(ctx), "book", metav1.DeleteOptions{})
	fmt.Println("the term is over:", errors.Is(err, member.ErrLost))
	fmt.Println("nothing was sent:", errors.Is(err, member.ErrNotBegun))
	// Output:
	// the term is over: true
	// nothing was sent: true
}

// A program on plain client-go: Lead is to clusters what
// leaderelection.RunOrDie is to processes.
func ExampleMember_Lead() {
	ctx, stop := context.WithCancel(context.Background())
	fake := membertest.New() // in a program: m, err := member.New(cfg, member.Options{}), and go m.Start(ctx)
	fake.Promote("shop")

	err := fake.Lead(ctx, "shop", func(ctx context.Context) error {
		epoch, _ := member.EpochFrom(ctx)
		fmt.Println("leading shop in epoch", epoch)
		switch epoch {
		case 1:
			fake.Expire() // the hub falls silent: ctx ends, Lead waits for the next term
			<-ctx.Done()
			fmt.Printf("stopped:\n%v\n", context.Cause(ctx))
			fake.Promote("shop")
		default:
			stop() // the program must end
			<-ctx.Done()
		}
		return ctx.Err()
	})
	fmt.Println("Lead returned:", err)
	// Output:
	// leading shop in epoch 1
	// stopped:
	// the term is over: namespace shop, epoch 1: it ran out: the last Lease was 0.0 s old on arrival, and lasts 15 s
	// leading shop in epoch 2
	// Lead returned: context canceled
}

// Work by the clock: a loop in each cluster, which does something in the one that leads.
func ExampleMember_Lead_cron() {
	ctx, stop := context.WithCancel(context.Background())
	fake := membertest.New() // in a program: a *member.Member
	fake.Promote("shop")
	runs := 0
	_ = fake.Lead(ctx, "shop", func(ctx context.Context) error {
		tick := time.NewTicker(time.Millisecond) // in a program: an hour
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil // the term is over: another cluster's loop goes on
			case <-tick.C:
			}
			if member.Check(ctx) != nil { // read the clocks right before the act
				return nil
			}
			fmt.Println("backing up")
			if runs++; runs == 2 {
				stop()
			}
		}
	})
	// Output:
	// backing up
	// backing up
}

// A listener is notified of the current state first, then of every change.
func ExampleMember_Listen() {
	fake := membertest.New()
	fake.Demote("shop")
	heard := make(chan string)
	remove := fake.Listen(member.Listener{
		Promoted: func(ns string, t member.Term) { heard <- fmt.Sprint("promoted in ", ns, ", epoch ", t.Epoch()) },
		Demoted:  func(_ string, reason error) { heard <- reason.Error() },
	})
	defer remove()
	fmt.Println(<-heard)
	fake.Promote("shop")
	fmt.Println(<-heard)
	// Output:
	// this cluster does not lead the namespace: namespace shop: other.fake leads in epoch 1
	// promoted in shop, epoch 2
}
