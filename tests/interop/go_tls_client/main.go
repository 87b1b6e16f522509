// The Go client over TLS as a process: `NAMESRV TOPIC COUNT` sends messages and reads them; prints lines of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const patience = 60 * time.Second

var paper sync.Mutex

func say(told map[string]any) {
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

func send(servers primitive.NsResolver, topic string, count int) {
	maker, err := rocketmq.NewProducer(
		producer.WithNsResolver(servers), producer.WithGroupName("go_tls_producer"), producer.WithTls(true))
	must(err)
	must(maker.Start())
	for i := 0; i < count; i++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("body %d", i)))
		result, err := maker.SendSync(context.Background(), message)
		must(err)
		say(map[string]any{"status": int(result.Status)})
	}
	must(maker.Shutdown())
}

// Reads until it has seen all bodies, each once in the output.
func read(servers primitive.NsResolver, topic string, count int) {
	reader, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(servers), consumer.WithGroupName("of_"+topic), consumer.WithTls(true),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	must(err)
	seen, all := map[string]bool{}, make(chan bool, 1)
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		paper.Lock()
		defer paper.Unlock()
		for _, message := range messages {
			seen[string(message.Body)] = true
		}
		if len(seen) == count {
			select {
			case all <- true:
			default:
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	must(reader.Subscribe(topic, consumer.MessageSelector{}, handle))
	must(reader.Start())
	select {
	case <-all:
	case <-time.After(patience):
	}
	must(reader.Shutdown())
	paper.Lock()
	bodies := len(seen)
	paper.Unlock()
	say(map[string]any{"read": bodies})
}

func main() {
	rlog.SetLogLevel("warn")
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	servers := primitive.NewPassthroughResolver([]string{os.Args[1]})
	send(servers, os.Args[2], count)
	read(servers, os.Args[2], count)
	say(map[string]any{"over": true})
}
