// The genuine Java client against a name server: sends, consumes, queries; prints what it saw.
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class RoundTrip {
    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        String topic = args[1];
        DefaultMQProducer producer = new DefaultMQProducer("java_producer");
        producer.setNamesrvAddr(namesrv);
        // On a busy machine a first connection with TLS takes Java longer than its time limits.
        producer.setSendMsgTimeout(60_000);
        producer.start();
        for (boolean isReached = false; !isReached;) {
            try {
                isReached = producer.fetchPublishMessageQueues("TBW102") != null;
            } catch (MQClientException away) {
                System.out.println("again " + away.getErrorMessage());
            }
        }
        for (int i = 0; i < 20; i++) {
            Message message = new Message(topic, i % 2 == 0 ? "even" : "odd", "key" + i,
                ("body " + i).getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message);
            System.out.println("sent " + result.getSendStatus());
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 20; i < 30; i++) {
            batch.add(new Message(topic, "even", "key" + i, ("body " + i).getBytes(StandardCharsets.UTF_8)));
        }
        System.out.println("batch " + producer.send(batch).getSendStatus());
        byte[] big = new byte[100_000];
        System.out.println("big " + producer.send(new Message(topic, "even", "big", big)).getSendStatus());

        Set<String> seen = ConcurrentHashMap.newKeySet();
        CountDownLatch enough = new CountDownLatch(21);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java_consumer");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "even");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(m -> {
                if (seen.add(m.getKeys())) {
                    System.out.println("seen " + m.getKeys() + " " + m.getBody().length);
                    enough.countDown();
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("enough " + enough.await(60, TimeUnit.SECONDS));
        QueryResult found = producer.queryMessage(topic, "key7", 10, 0, System.currentTimeMillis() + 60_000);
        System.out.println("query " + new String(found.getMessageList().get(0).getBody(), StandardCharsets.UTF_8));
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }
}
