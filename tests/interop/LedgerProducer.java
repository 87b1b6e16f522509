// Java senders that keep a ledger: one thread and one message in flight for each queue.
//
//   LedgerProducer NAMESRV TOPIC FIRST_QUEUE END_QUEUE     until its standard input ends
//
// "sends QUEUE NUMBER" before a message is sent for the first time, "stored QUEUE NUMBER OFFSET" when
// it was answered SEND_OK, "failed QUEUE NUMBER why" for any other outcome, after which it is sent again.
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

public class LedgerProducer {
    static final PrintStream out = System.out;
    static volatile boolean stopping = false;

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java_ledger");
        producer.setNamesrvAddr(args[0]);
        // It looks for a new master by itself only every 30 seconds otherwise.
        producer.setPollNameServerInterval(500);
        producer.start();
        List<Thread> senders = new ArrayList<>();
        for (int queue = Integer.parseInt(args[2]); queue < Integer.parseInt(args[3]); queue++) {
            int own = queue;
            Thread sender = new Thread(() -> send(producer, args[1], own));
            sender.start();
            senders.add(sender);
        }
        tell("ready");
        waitForEnd();
        stopping = true;
        for (Thread sender : senders) {
            sender.join();
        }
        System.exit(0);
    }

    static void send(DefaultMQProducer producer, String topic, int queue) {
        for (int number = 0; !stopping; number++) {
            String body = queue + ":" + number + ":" + "j".repeat(number * 37 % 400);
            tell("sends " + queue + " " + number);
            while (!stopping) {
                boolean stored = isStored(producer, topic, queue, number, body);
                pause(stored ? 2 : 20);  // other senders and three brokers share the machine
                if (stored) {
                    break;
                }
            }
        }
    }

    static boolean isStored(DefaultMQProducer producer, String topic, int queue, int number, String body) {
        String why;
        try {
            // A new one for each try: a send leaves properties in it.
            Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message, (queues, each, id) -> queues.stream()
                .filter(one -> one.getQueueId() == (int) id).findFirst().orElseThrow(), queue, 3000);
            if (result.getSendStatus() == SendStatus.SEND_OK) {
                tell("stored " + queue + " " + number + " " + result.getQueueOffset());
                return true;
            }
            why = result.getSendStatus().toString();
        } catch (Exception error) {
            why = error.getClass().getSimpleName();
        }
        tell("failed " + queue + " " + number + " " + why);
        return false;
    }

    static void pause(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
        }
    }

    static void waitForEnd() throws IOException {
        while (System.in.read() >= 0) {
            continue;
        }
    }

    static synchronized void tell(String line) {
        out.println(line);
    }
}
