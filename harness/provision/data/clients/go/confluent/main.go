// Transactional producers of confluent-kafka-go, driven by lines. The library contains librdkafka.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"eosharness.invalid/drivers/lines"
	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const limit = 30 * time.Second

type member struct {
	consumer *kafka.Consumer
	metadata *kafka.ConsumerGroupMetadata
}

var producers = map[string]*kafka.Producer{}
var members = map[string]member{}

func main() {
	lines.Serve(func(words []string) error { return named(carryOut(words)) })
}

// named puts the number of librdkafka's error before its message, because the library has no names for errors.
func named(err error) error {
	var failure kafka.Error
	if errors.As(err, &failure) {
		return fmt.Errorf("LIBRDKAFKA_%d: %w", failure.Code(), err)
	}
	return err
}

func carryOut(words []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	name := words[1]
	switch words[0] {
	case "open":
		return open(name, words[2], words[3], words[4], words[5])
	case "join":
		return join(name, words[2], words[3], words[4])
	case "leave":
		return members[name].consumer.Close()
	}
	producer := producers[name]
	switch words[0] {
	case "init":
		return producer.InitTransactions(ctx)
	case "begin":
		return producer.BeginTransaction()
	case "commit":
		return producer.CommitTransaction(ctx)
	case "abort":
		return producer.AbortTransaction(ctx)
	case "send":
		return send(producer, words[2], words[3], words[4:])
	case "offset":
		return sendOffset(ctx, producer, words)
	case "close":
		producer.Purge(kafka.PurgeInFlight | kafka.PurgeQueue)
		producer.Close()
		return nil
	}
	return fmt.Errorf("%w: there is no command %s", lines.ErrUnsupported, words[0])
}

func open(name, bootstrap, transactionalID, clientID, timeoutMs string) error {
	timeout, err := strconv.Atoi(timeoutMs)
	if err != nil {
		return err
	}
	producer, err := kafka.NewProducer(&kafka.ConfigMap{
		"bootstrap.servers":      bootstrap,
		"transactional.id":       transactionalID,
		"client.id":              clientID,
		"transaction.timeout.ms": timeout,
		"log_level":              0,
	})
	if err != nil {
		return err
	}
	producers[name] = producer
	go func() {
		for range producer.Events() {
		}
	}()
	return nil
}

func send(producer *kafka.Producer, topic, number string, values []string) error {
	partition, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	reports := make(chan kafka.Event, len(values))
	for _, value := range values {
		message := &kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: int32(partition)},
			Value:          []byte(value),
		}
		if err := producer.Produce(message, reports); err != nil {
			return err
		}
	}
	for range values {
		select {
		case event := <-reports:
			if message, ok := event.(*kafka.Message); ok && message.TopicPartition.Error != nil {
				return message.TopicPartition.Error
			}
		case <-time.After(limit):
			return errors.New("a record is not acknowledged")
		}
	}
	return nil
}

func join(name, bootstrap, group, topic string) error {
	consumer, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers":  bootstrap,
		"group.id":           group,
		"enable.auto.commit": false,
		"log_level":          0,
	})
	if err != nil {
		return err
	}
	if err := consumer.Subscribe(topic, nil); err != nil {
		return err
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		consumer.Poll(100)
		if assigned, err := consumer.Assignment(); err != nil {
			return err
		} else if len(assigned) > 0 {
			metadata, err := consumer.GetConsumerGroupMetadata()
			members[name] = member{consumer, metadata}
			return err
		}
	}
	return errors.New("no assignment")
}

func sendOffset(ctx context.Context, producer *kafka.Producer, words []string) error {
	group, topic := words[2], words[3]
	partition, err := strconv.Atoi(words[4])
	if err != nil {
		return err
	}
	offset, err := strconv.ParseInt(words[5], 10, 64)
	if err != nil {
		return err
	}
	var metadata *kafka.ConsumerGroupMetadata
	if len(words) > 6 {
		metadata = members[words[6]].metadata
	} else if metadata, err = kafka.NewTestConsumerGroupMetadata(group); err != nil { // names the group only
		return err
	}
	positions := []kafka.TopicPartition{{Topic: &topic, Partition: int32(partition), Offset: kafka.Offset(offset)}}
	return producer.SendOffsetsToTransaction(ctx, positions, metadata)
}
