// A genuine Java consumer that chooses messages by an expression on their properties:
//
//   NAMESRV GROUP TOPIC EXPRESSION COUNT SECONDS
//
// Prints each body as "got BODY" until there are so many, or the time is over and a moment more; one
// that is refused at its start prints "refused CODE remark". The first try of each message fails.
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

public class SqlConsumer {
    public static void main(String[] args) throws Exception {
        CountDownLatch left = new CountDownLatch(Integer.parseInt(args[4]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], MessageSelector.bySql(args[3]));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (message.getReconsumeTimes() == 0) {
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                System.out.println("got " + new String(message.getBody(), StandardCharsets.UTF_8));
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            consumer.start();
        } catch (MQClientException refused) {
            System.out.println("refused " + refused.getResponseCode() + " " + refused.getErrorMessage());
            System.exit(0);
        }
        left.await(Integer.parseInt(args[5]), TimeUnit.SECONDS);
        Thread.sleep(1500);  // nothing more may come
        consumer.shutdown();
        System.exit(0);
    }
}
