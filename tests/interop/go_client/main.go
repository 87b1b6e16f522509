// The Go client as a process: `WHAT NAMESRV TOPIC COUNT [more]`, where WHAT is send, batch, order, consume,
// ordered, pull, transact or request; prints lines of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const patience = 60 * time.Second

type facts map[string]any

var paper sync.Mutex

func say(told facts) {
	paper.Lock()
	defer paper.Unlock()
	line, _ := json.Marshal(told)
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tag(number int) string {
	if number%2 == 0 {
		return "even"
	}
	return "odd"
}

func made(topic string, number int) *primitive.Message {
	message := primitive.NewMessage(topic, []byte(fmt.Sprintf("body %d", number)))
	message.WithTag(tag(number)).WithKeys([]string{fmt.Sprintf("key%d", number)})
	message.WithProperty("number", strconv.Itoa(number))
	return message
}

func sent(result *primitive.SendResult, err error) {
	must(err)
	say(facts{"status": int(result.Status), "queue": result.MessageQueue.QueueId, "id": result.MsgID})
}

func started(namesrv string) rocketmq.Producer {
	maker, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		producer.WithGroupName("go_producer"), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	must(err)
	must(maker.Start())
	return maker
}

// Single messages, one that a level delays, one that is squeezed on its way.
func send(namesrv, topic string, count int) {
	maker := started(namesrv)
	for i := 0; i < count; i++ {
		sent(maker.SendSync(context.Background(), made(topic, i)))
	}
	late := primitive.NewMessage(topic, []byte("late")).WithDelayTimeLevel(1).WithTag("late")
	sent(maker.SendSync(context.Background(), late))
	big := primitive.NewMessage(topic, []byte(strings.Repeat("z", 100_000))).WithTag("big")
	sent(maker.SendSync(context.Background(), big))
	must(maker.Shutdown())
}

func batch(namesrv, topic string, count int) {
	maker := started(namesrv)
	var all []*primitive.Message
	for i := 0; i < count; i++ {
		all = append(all, made(topic, i))
	}
	sent(maker.SendSync(context.Background(), all...))
	must(maker.Shutdown())
}

// Four keys in turn: those of one key lie in one queue.
func order(namesrv, topic string, count int) {
	maker := started(namesrv)
	for i := 0; i < count; i++ {
		body := []byte(fmt.Sprintf("%d:%d", i%4, i))
		message := primitive.NewMessage(topic, body).WithShardingKey(fmt.Sprintf("key-%d", i%4))
		sent(maker.SendSync(context.Background(), message))
	}
	must(maker.Shutdown())
}

func selector(more []string) consumer.MessageSelector {
	if len(more) > 1 {
		return consumer.MessageSelector{Type: consumer.ExpressionType(more[1]), Expression: more[0]}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: more[0]}
}

func group(namesrv, topic string) []consumer.Option {
	return []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithGroupName("of_" + topic),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
}

// A body that begins with "fail-once" fails in its first try.
func consume(namesrv, topic string, count int, more []string, ordered bool) {
	member, err := rocketmq.NewPushConsumer(append(group(namesrv, topic), consumer.WithConsumerOrder(ordered))...)
	must(err)
	enough := make(chan bool)
	var seen sync.WaitGroup
	seen.Add(count)
	left := count
	var one sync.Mutex
	must(member.Subscribe(topic, selector(more), func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			body := string(message.Body)
			say(facts{"body": body[:min(len(body), 100)], "length": len(body), "tag": message.GetTags(), "key": message.GetKeys(),
				"tries": message.ReconsumeTimes, "queue": message.Queue.QueueId, "ms": time.Now().UnixMilli(),
				"stored_ms": message.StoreTimestamp, "born_ms": message.BornTimestamp, "topic": message.Topic})
			if strings.HasPrefix(body, "fail-once") && message.ReconsumeTimes == 0 {
				if ordered {
					return consumer.SuspendCurrentQueueAMoment, nil
				}
				return consumer.ConsumeRetryLater, nil
			}
			one.Lock()
			if left > 0 {
				left--
				seen.Done()
			}
			one.Unlock()
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(member.Start())
	go func() { seen.Wait(); enough <- true }()
	select {
	case <-enough:
	case <-time.After(patience):
	}
	// What a handler has answered is noted once it has returned, and a shutdown saves what is noted.
	time.Sleep(time.Second)
	must(member.Shutdown())
}

func pull(namesrv, topic string, count int, more []string) {
	member, err := rocketmq.NewPullConsumer(group(namesrv, topic)...)
	must(err)
	must(member.Subscribe(topic, selector(more)))
	must(member.Start())
	until := time.Now().Add(patience)
	for left := count; left > 0 && time.Now().Before(until); {
		found, err := member.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		must(err)
		for _, message := range found.GetMsgList() {
			say(facts{"body": string(message.Body), "tag": message.GetTags(), "queue": message.Queue.QueueId})
			left--
		}
		member.ACK(context.Background(), found, consumer.ConsumeSuccess)
	}
	must(member.PersistOffset(context.Background(), topic))
	must(member.Shutdown())
}

// What its bodies say happens: "yes", "no", and "asked-yes", "asked-no" once the broker asks.
type decisions struct{ asked chan string }

func decided(word string) primitive.LocalTransactionState {
	switch word {
	case "yes":
		return primitive.CommitMessageState
	case "no":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func (d *decisions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return decided(string(message.Body))
}

func (d *decisions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	body := string(message.Body)
	say(facts{"checked": body, "topic": message.Topic})
	d.asked <- body
	return decided(strings.TrimPrefix(body, "asked-"))
}

func transact(namesrv, topic string) {
	listener := &decisions{asked: make(chan string, 16)}
	maker, err := rocketmq.NewTransactionProducer(listener,
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})), producer.WithGroupName("go_transactions"))
	must(err)
	must(maker.Start())
	for _, body := range []string{"yes", "no", "asked-yes", "asked-no"} {
		result, err := maker.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte(body)).WithTag("tx"))
		must(err)
		say(facts{"status": int(result.Status), "state": int(result.State)})
	}
	for i := 0; i < 2; i++ {
		select {
		case <-listener.asked:
		case <-time.After(patience):
		}
	}
	time.Sleep(time.Second)
	must(maker.Shutdown())
}

func request(namesrv, topic string, count int) {
	maker := started(namesrv)
	for i := 0; i < count; i++ {
		reply, err := maker.Request(context.Background(), 20*time.Second, primitive.NewMessage(topic, []byte(fmt.Sprintf("body %d", i))))
		must(err)
		say(facts{"reply": string(reply.Body)})
	}
	must(maker.Shutdown())
}

func main() {
	rlog.SetLogLevel("error")
	what, namesrv, topic := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	must(err)
	more := os.Args[5:]
	switch what {
	case "send":
		send(namesrv, topic, count)
	case "batch":
		batch(namesrv, topic, count)
	case "order":
		order(namesrv, topic, count)
	case "consume", "ordered":
		consume(namesrv, topic, count, more, what == "ordered")
	case "pull":
		pull(namesrv, topic, count, more)
	case "transact":
		transact(namesrv, topic)
	case "request":
		request(namesrv, topic, count)
	}
	say(facts{"over": true})
	os.Exit(0)
}
