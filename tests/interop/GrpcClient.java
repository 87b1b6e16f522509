import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The Java client of RocketMQ 5; harness/grpc_clients.py says what it is told. */
public class GrpcClient {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final Map<String, Object> OPEN = new HashMap<>();
    static ClientConfiguration configuration;

    static synchronized void say(String... words) {
        System.out.println(String.join("\t", words));
    }

    static String bodyOf(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }

    @SuppressWarnings("unchecked")
    static <T> T started(String key, Callable<T> make) throws Exception {
        if (!OPEN.containsKey(key)) {
            OPEN.put(key, make.call());
        }
        return (T) OPEN.get(key);
    }

    static Producer producer(String topic) throws Exception {
        return started(topic, () -> PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics(topic)
            .setTransactionChecker(message -> {
                say("checked", bodyOf(message));
                return TransactionResolution.COMMIT;
            })
            .build());
    }

    static MessageBuilder message(String topic, String body) {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(bytes);
    }

    static String send(String topic, String kind, String value, String body) throws Exception {
        MessageBuilder message = message(topic, body);
        switch (kind) {
            case "FIFO" -> message.setMessageGroup(value);
            case "DELAY" -> message.setDeliveryTimestamp(System.currentTimeMillis() + 1000 * Long.parseLong(value));
            case "PRIORITY" -> message.setPriority(Integer.parseInt(value));
            default -> {
                if (!value.isEmpty()) {
                    message.setTag(value);
                }
            }
        }
        String handle = producer(topic).send(message.build()).getRecallHandle();
        return handle == null ? "" : handle;
    }

    static void transact(String topic, String end, String body) throws Exception {
        Transaction transaction = producer(topic).beginTransaction();
        producer(topic).send(message(topic, body).build(), transaction);
        if (end.equals("commit")) {
            transaction.commit();
        } else if (end.equals("rollback")) {
            transaction.rollback();
        }
    }

    static ConsumeResult consume(String group, MessageView message) {
        String body = bodyOf(message);
        String[] words = body.split(" ");
        int attempt = message.getDeliveryAttempt();
        say("handled", group, "" + attempt, body);
        if (words[0].equals("slow")) {
            try {
                Thread.sleep(1000 * Long.parseLong(words[1]));
            } catch (InterruptedException error) {
                return ConsumeResult.FAILURE;
            }
            say("finished", group, "" + attempt, body);
        }
        boolean fails = words[0].equals("fails") && attempt <= Integer.parseInt(words[1]);
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    static Map<String, FilterExpression> subscription(String topic, String tag) {
        return Map.of(topic, new FilterExpression(tag.isEmpty() ? "*" : tag));
    }

    static void push(String group, String topic, String tag) throws Exception {
        started(group + topic, () -> PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setSubscriptionExpressions(subscription(topic, tag))
            .setMessageListener(message -> consume(group, message))
            .build());
    }

    static List<String> receive(String group, String topic, String tag, String end) throws Exception {
        SimpleConsumer consumer = started(group + topic, () -> PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setSubscriptionExpressions(subscription(topic, tag))
            .setAwaitDuration(Duration.ofSeconds(5))
            .build());
        List<String> found = new ArrayList<>();
        for (MessageView message : consumer.receive(32, Duration.ofSeconds(15))) {
            if (end.equals("ack")) {
                consumer.ack(message);
            } else if (end.equals("change")) {
                consumer.changeInvisibleDuration(message, Duration.ofSeconds(10));
            }
            found.add(message.getDeliveryAttempt() + " " + bodyOf(message));
        }
        return found;
    }

    static List<String> answer(String[] words) throws Exception {
        switch (words[0]) {
            case "send" -> {
                return List.of(send(words[1], words[2], words[3], words[4]));
            }
            case "transact" -> transact(words[1], words[2], words[3]);
            case "recall" -> producer(words[1]).recallMessage(words[1], words[2]);
            case "push" -> push(words[1], words[2], words[3]);
            default -> {
                return receive(words[1], words[2], words[3], words[4]);
            }
        }
        return List.of();
    }

    public static void main(String[] args) throws Exception {
        boolean isSecure = args.length > 1 && args[1].equals("tls");
        configuration = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(isSecure).build();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                List<String> answer = answer(line.split("\t", -1));
                say("answer" + (answer.isEmpty() ? "" : "\t" + String.join("\t", answer)));
            } catch (Exception error) {
                say("failed", error.toString().replace("\n", " "));
            }
        }
        System.exit(0);
    }
}
