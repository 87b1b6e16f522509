// The genuine Java client asks and answers: `ask NAMESRV TOPIC COUNT`, or `answer NAMESRV TOPIC COUNT`.
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class RequestReply {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java_" + args[0]);
        producer.setNamesrvAddr(args[1]);
        producer.start();
        if (args[0].equals("ask")) {
            ask(producer, args[2], Integer.parseInt(args[3]));
        } else {
            answer(producer, args[1], args[2], Integer.parseInt(args[3]));
        }
        producer.shutdown();
        System.exit(0);
    }

    static void ask(DefaultMQProducer producer, String topic, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            Message reply = producer.request(new Message(topic, bytes("body " + i)), 20_000);
            System.out.println("reply " + text(reply.getBody()) + " " + reply.getProperty("mine"));
        }
        try {
            producer.request(new Message(topic, bytes("silence")), 2_000);
        } catch (RequestTimeoutException error) {
            System.out.println("timeout");
        }
    }

    static void answer(DefaultMQProducer producer, String namesrv, String topic, int count) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java_answers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    Message reply = MessageUtil.createReplyMessage(message, bytes(text(message.getBody()).toUpperCase()));
                    System.out.println("answered " + producer.send(reply, 3_000).getSendStatus());
                    left.countDown();
                } catch (Exception error) {
                    System.out.println("failed " + error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("enough " + left.await(60, TimeUnit.SECONDS));
        Thread.sleep(1_000);
        consumer.shutdown();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
