// The Go client of RocketMQ 5; harness/grpc_clients.py says what it is told.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type starter interface{ Start() error }

var (
	endpoint = os.Args[1]
	open     = map[string]starter{}
	output   sync.Mutex
)

func say(words ...string) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(strings.Join(words, "\t"))
}

func number(text string) int {
	found, _ := strconv.Atoi(text)
	return found
}

func started(key string, build func() (starter, error)) (starter, error) {
	if client, is := open[key]; is {
		return client, nil
	}
	client, err := build()
	if err == nil {
		err = client.Start()
	}
	if err == nil {
		open[key] = client
	}
	return client, err
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func producer(topic string) (rmq.Producer, error) {
	check := func(message *rmq.MessageView) rmq.TransactionResolution {
		say("checked", string(message.GetBody()))
		return rmq.COMMIT
	}
	client, err := started(topic, func() (starter, error) {
		return rmq.NewProducer(config(""), rmq.WithTopics(topic),
			rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check}))
	})
	if err != nil {
		return nil, err
	}
	return client.(rmq.Producer), nil
}

func send(topic, kind, value, body string) ([]string, error) {
	sender, err := producer(topic)
	if err != nil {
		return nil, err
	}
	message := &rmq.Message{Topic: topic, Body: []byte(body)}
	switch {
	case kind == "FIFO":
		message.SetMessageGroup(value)
	case kind == "DELAY":
		message.SetDelayTimestamp(time.Now().Add(time.Duration(number(value)) * time.Second))
	case kind == "PRIORITY":
		err = message.SetPriority(int32(number(value)))
	case value != "":
		message.SetTag(value)
	}
	if err != nil {
		return nil, err
	}
	receipts, err := sender.Send(context.Background(), message)
	if err != nil {
		return nil, err
	}
	return []string{receipts[0].RecallHandle}, nil
}

func transact(topic, end, body string) error {
	sender, err := producer(topic)
	if err != nil {
		return err
	}
	transaction := sender.BeginTransaction()
	message := &rmq.Message{Topic: topic, Body: []byte(body)}
	if _, err := sender.SendWithTransaction(context.Background(), message, transaction); err != nil {
		return err
	}
	switch end {
	case "commit":
		return transaction.Commit()
	case "rollback":
		return transaction.RollBack()
	}
	return nil
}

func recall(topic, handle string) error {
	sender, err := producer(topic)
	if err == nil {
		_, err = sender.Recall(context.Background(), topic, handle)
	}
	return err
}

func subscription(topic, tag string) map[string]*rmq.FilterExpression {
	if tag == "" {
		tag = "*"
	}
	return map[string]*rmq.FilterExpression{topic: rmq.NewFilterExpression(tag)}
}

func push(group, topic, tag string) error {
	consume := func(message *rmq.MessageView) rmq.ConsumerResult {
		body, attempt := string(message.GetBody()), int(message.GetDeliveryAttempt())
		words := append(strings.Fields(body), "", "")
		say("handled", group, strconv.Itoa(attempt), body)
		if words[0] == "slow" {
			time.Sleep(time.Duration(number(words[1])) * time.Second)
			say("finished", group, strconv.Itoa(attempt), body)
		}
		if words[0] == "fails" && attempt <= number(words[1]) {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}
	_, err := started(group+topic, func() (starter, error) {
		return rmq.NewPushConsumer(config(group), rmq.WithPushAwaitDuration(5*time.Second),
			rmq.WithPushSubscriptionExpressions(subscription(topic, tag)),
			rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}),
			rmq.WithPushConsumptionThreadCount(20), rmq.WithPushMaxCacheMessageCount(1024))
	})
	return err
}

func receive(group, topic, tag, end string) ([]string, error) {
	client, err := started(group+topic, func() (starter, error) {
		return rmq.NewSimpleConsumer(config(group), rmq.WithSimpleAwaitDuration(5*time.Second),
			rmq.WithSimpleSubscriptionExpressions(subscription(topic, tag)))
	})
	if err != nil {
		return nil, err
	}
	consumer := client.(rmq.SimpleConsumer)
	messages, err := consumer.Receive(context.Background(), 32, 15*time.Second)
	if err != nil && strings.Contains(err.Error(), "no new message") {
		return nil, nil
	}
	found := []string{}
	for _, message := range messages {
		if end == "ack" {
			err = consumer.Ack(context.Background(), message)
		} else if end == "change" {
			err = consumer.ChangeInvisibleDuration(message, 10*time.Second)
		}
		found = append(found, fmt.Sprintf("%d %s", message.GetDeliveryAttempt(), message.GetBody()))
	}
	return found, err
}

func answer(what string, words []string) ([]string, error) {
	switch what {
	case "send":
		return send(words[0], words[1], words[2], words[3])
	case "transact":
		return nil, transact(words[0], words[1], words[2])
	case "recall":
		return nil, recall(words[0], words[1])
	case "push":
		return nil, push(words[0], words[1], words[2])
	}
	return receive(words[0], words[1], words[2], words[3])
}

func main() {
	rmq.EnableSsl = len(os.Args) > 2 && os.Args[2] == "tls"
	rmq.ResetLogger()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		found, err := answer(words[0], words[1:])
		if err != nil {
			say("failed", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			say(append([]string{"answer"}, found...)...)
		}
	}
}
