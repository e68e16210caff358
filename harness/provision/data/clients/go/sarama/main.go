// Transactional producers of sarama, driven by lines.
package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"eosharness.invalid/drivers/lines"
	"github.com/IBM/sarama"
)

var (
	settings  = map[string][]string{}
	producers = map[string]sarama.SyncProducer{}
)

func main() {
	lines.Serve(carryOut)
}

func carryOut(words []string) error {
	name := words[1]
	producer := producers[name]
	switch words[0] {
	case "open":
		settings[name] = words[2:]
		return nil
	case "init":
		opened, err := open(settings[name])
		producers[name] = opened
		return err
	case "begin":
		return producer.BeginTxn()
	case "commit":
		return producer.CommitTxn()
	case "abort":
		return producer.AbortTxn()
	case "send":
		return send(producer, words)
	case "offset":
		return offset(producer, words)
	case "close":
		return producer.Close()
	}
	return fmt.Errorf("%w: sarama's transactions take no group metadata", lines.ErrUnsupported)
}

// open creates a producer, which initialises its transactional id.
func open(words []string) (sarama.SyncProducer, error) {
	timeout, err := strconv.Atoi(words[3])
	if err != nil {
		return nil, err
	}
	config := sarama.NewConfig()
	config.ClientID = words[2]
	config.Producer.Transaction.ID = words[1]
	config.Producer.Transaction.Timeout = time.Duration(timeout) * time.Millisecond
	config.Producer.Partitioner = sarama.NewManualPartitioner
	// sarama requires these four settings of a transactional producer.
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	return sarama.NewSyncProducer(strings.Split(words[0], ","), config)
}

func send(producer sarama.SyncProducer, words []string) error {
	partition, err := strconv.Atoi(words[3])
	if err != nil {
		return err
	}
	var messages []*sarama.ProducerMessage
	for _, value := range words[4:] {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: words[2], Partition: int32(partition), Value: sarama.StringEncoder(value),
		})
	}
	return producer.SendMessages(messages)
}

func offset(producer sarama.SyncProducer, words []string) error {
	if len(words) > 6 {
		return fmt.Errorf("%w: sarama's transactions take no group metadata", lines.ErrUnsupported)
	}
	partition, err := strconv.Atoi(words[4])
	if err != nil {
		return err
	}
	position, err := strconv.ParseInt(words[5], 10, 64)
	if err != nil {
		return err
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{
		words[3]: {{Partition: int32(partition), Offset: position}},
	}
	return producer.AddOffsetsToTxn(offsets, words[2])
}
