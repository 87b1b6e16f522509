// The genuine Java client's transactions: `NAMESRV GROUP TOPIC SECONDS CHECKS`. A body says what becomes of it:
// commit, rollback, or what the first and second check are told, as unknown-commit, unknown-unknown-commit.
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class Transactions {
    static final String[] BODIES = {
        "commit", "rollback", "unknown-commit", "unknown-rollback", "unknown-unknown-commit", "throw-commit",
    };

    static final AtomicInteger CHECKS = new AtomicInteger();

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace(System.out);
            System.exit(1);
        }
    }

    static void run(String[] args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(args[1]);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(20_000);
        producer.setTransactionListener(new Listener());
        producer.start();
        for (String body : BODIES) {
            Message message = new Message(args[2], "tag", body, body.getBytes(StandardCharsets.UTF_8));
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            boolean named = result.getTransactionId() != null;
            System.out.println("sent " + body + " " + result.getSendStatus() + " " + result.getLocalTransactionState() + " " + named);
        }
        long end = System.currentTimeMillis() + Long.parseLong(args[3]) * 1000;
        while (CHECKS.get() < Integer.parseInt(args[4]) && System.currentTimeMillis() < end) {
            Thread.sleep(100);
        }
        Thread.sleep(6_000); // for a check that should not come
        producer.shutdown();
    }

    static class Listener implements TransactionListener {
        private final Map<String, Integer> asked = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
            return state(new String(message.getBody(), StandardCharsets.UTF_8).split("-")[0]);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            CHECKS.incrementAndGet();
            int times = asked.merge(body, 1, Integer::sum);
            String counted = message.getUserProperty("TRANSACTION_CHECK_TIMES");
            System.out.println("check " + body + " " + times + " " + counted + " " + message.getTopic());
            return state(body.split("-")[times]);
        }

        static LocalTransactionState state(String word) {
            switch (word) {
                case "commit": return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
                case "unknown": return LocalTransactionState.UNKNOW;
                default: throw new IllegalStateException(word);
            }
        }
    }
}
