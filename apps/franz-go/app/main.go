// Consume, transform and produce with franz-go's GroupTransactSession: one invoice for each order, in transactions.
//
// ABORT_SHARE is the share of transactions that the program aborts by itself, as one with a failing database would.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type order struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
}

func main() {
	group, instance := os.Getenv("GROUP"), os.Getenv("INSTANCE")
	share, err := strconv.ParseFloat(os.Getenv("ABORT_SHARE"), 64)
	must(err)
	timeout, err := strconv.Atoi(os.Getenv("TRANSACTION_TIMEOUT_MS"))
	must(err)
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(os.Getenv("BOOTSTRAP"), ",")...),
		kgo.ClientID(instance),
		kgo.TransactionalID(os.Getenv("TRANSACTIONAL_ID")),
		kgo.TransactionTimeout(time.Duration(timeout) * time.Millisecond),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(os.Getenv("ORDERS")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
	)
	must(err)
	defer session.Close()
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("started", instance)
	for {
		orders := session.PollRecords(stopped, 50)
		if stopped.Err() != nil {
			return
		}
		orders.EachError(func(topic string, partition int32, err error) {
			fmt.Println("fetch", topic, partition, err)
		})
		if !orders.Empty() {
			process(session, orders, rand.Float64() >= share)
		}
	}
}

// process writes the invoices of a batch in one transaction, with the new positions of the group.
func process(session *kgo.GroupTransactSession, orders kgo.Fetches, commit bool) {
	ctx := context.Background()
	must(session.Begin())
	failed := kgo.AbortingFirstErrPromise(session.Client())
	orders.EachRecord(func(record *kgo.Record) {
		var content order
		must(json.Unmarshal(record.Value, &content))
		invoice := fmt.Sprintf(`{"invoice_for":"%s","total":%d}`, content.Order, content.Amount*2)
		out := &kgo.Record{Topic: os.Getenv("INVOICES"), Key: record.Key, Value: []byte(invoice)}
		session.Produce(ctx, out, failed.Promise())
	})
	committed, err := session.End(ctx, kgo.TransactionEndTry(failed.Err() == nil && commit))
	if err != nil || !committed {
		fmt.Println("not committed:", err)
	}
	must(err)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
