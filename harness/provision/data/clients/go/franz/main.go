// Transactional producers of franz-go, driven by lines.
package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"eosharness.invalid/drivers/lines"
	"github.com/twmb/franz-go/pkg/kgo"
)

var producers = map[string]*kgo.Client{}

func main() {
	lines.Serve(carryOut)
}

func carryOut(words []string) error {
	ctx := context.Background()
	name := words[1]
	if words[0] == "open" {
		client, err := open(words[2], words[3], words[4], words[5])
		producers[name] = client
		return err
	}
	producer := producers[name]
	switch words[0] {
	case "init":
		// ProducerID initialises the transactional id.
		_, _, err := producer.ProducerID(ctx)
		return err
	case "begin":
		return producer.BeginTransaction()
	case "commit":
		return end(ctx, producer, kgo.TryCommit)
	case "abort":
		return end(ctx, producer, kgo.TryAbort)
	case "send":
		return send(ctx, producer, words)
	case "close":
		producer.Close()
		return nil
	}
	return fmt.Errorf("%w: franz-go commits offsets in GroupTransactSession only", lines.ErrUnsupported)
}

func open(bootstrap, transactionalID, clientID, timeoutMs string) (*kgo.Client, error) {
	timeout, err := strconv.Atoi(timeoutMs)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID(transactionalID),
		kgo.ClientID(clientID),
		kgo.TransactionTimeout(time.Duration(timeout)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), // the harness reads the batches in the log
	)
}

func end(ctx context.Context, producer *kgo.Client, how kgo.TransactionEndTry) error {
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	return producer.EndTransaction(ctx, how)
}

func send(ctx context.Context, producer *kgo.Client, words []string) error {
	partition, err := strconv.Atoi(words[3])
	if err != nil {
		return err
	}
	var records []*kgo.Record
	for _, value := range words[4:] {
		records = append(records, &kgo.Record{Topic: words[2], Partition: int32(partition), Value: []byte(value)})
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}
