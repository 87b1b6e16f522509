// What the genuine Java client can do, as others order it: commands on stdin, answers and handled messages on stdout.
//
//   NUMBER send NAMESRV TOPIC TAG KEY BODY [NAME=VALUE ...]      properties of any name; "SEND_OK id offsetId [handle]"
//   NUMBER batch NAMESRV TOPIC COUNT
//   NUMBER order NAMESRV TOPIC COUNT                             four keys in turn
//   NUMBER recall NAMESRV TOPIC HANDLE
//   NUMBER consume NAME NAMESRV GROUP TOPIC MODE EXPRESSION...   MODE: clustering, broadcasting, orderly
//   NUMBER leave NAME
//   NUMBER pull NAMESRV GROUP TOPIC EXPRESSION                   from the first message; saves how far it came
//   NUMBER poll NAMESRV GROUP TOPIC COUNT                        from where the group is
//   NUMBER key NAMESRV TOPIC KEY
//   NUMBER id NAMESRV TOPIC ID
//   NUMBER bounds NAMESRV TOPIC                                  sums over the queues: first, last, first since an hour
//
// Each is answered by "= NUMBER answer". A message is told as "handled NAME millis tries topic broker queue body".
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class Features {
    static final Map<String, DefaultMQPushConsumer> members = new HashMap<>();
    static final Map<String, DefaultMQProducer> producers = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ready");
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.trim().split(" ");
            String answer;
            try {
                answer = obey(words[1], Arrays.copyOfRange(words, 2, words.length));
            } catch (Exception error) {
                answer = "failed " + error;
            }
            System.out.println("= " + words[0] + " " + answer.replace('\n', ' '));
        }
        System.exit(0);
    }

    static String obey(String order, String[] words) throws Exception {
        switch (order) {
            case "send":
                return send(words);
            case "batch":
                return batch(words[0], words[1], Integer.parseInt(words[2]));
            case "order":
                return order(words[0], words[1], Integer.parseInt(words[2]));
            case "recall":
                return "" + DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                    .invoke(producer(words[0]), words[1], words[2]);
            case "consume":
                return consume(words);
            case "leave":
                members.remove(words[0]).shutdown();
                return "left";
            case "pull":
                return pull(words[0], words[1], words[2], words[3]);
            case "poll":
                return poll(words[0], words[1], words[2], Integer.parseInt(words[3]));
            case "key":
                return bodies(producer(words[0]).queryMessage(words[1], words[2], 32, 0, Long.MAX_VALUE).getMessageList());
            case "id":
                return text(producer(words[0]).viewMessage(words[1], words[2]));
            case "bounds":
                return bounds(words[0], words[1]);
            default:
                return "failed unknown order";
        }
    }

    static String send(String[] words) throws Exception {
        Message message = new Message(words[1], words[2], words[3], words[4].getBytes(StandardCharsets.UTF_8));
        for (int i = 5; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            MessageAccessor.putProperty(message, pair[0], pair[1]);
        }
        SendResult result = producer(words[0]).send(message);
        String handle;
        try {
            handle = "" + SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (NoSuchMethodException older) {
            handle = "";
        }
        return result.getSendStatus() + " " + result.getMsgId() + " " + result.getOffsetMsgId() + " " + handle;
    }

    static String batch(String namesrv, String topic, int count) throws Exception {
        List<Message> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            all.add(new Message(topic, "batch", "batch" + i, ("batch-" + i).getBytes(StandardCharsets.UTF_8)));
        }
        return producer(namesrv).send(all).getSendStatus().toString();
    }

    static String order(String namesrv, String topic, int count) throws Exception {
        List<String> said = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, ("key" + i % 4 + ":" + i).getBytes(StandardCharsets.UTF_8));
            SendResult result = producer(namesrv).send(message, (queues, m, key) -> queues.get((Integer) key % queues.size()), i % 4);
            said.add(result.getMessageQueue().getQueueId() + "");
        }
        return String.join(" ", said);
    }

    static String consume(String[] words) throws Exception {
        String name = words[0];
        DefaultMQPushConsumer member = new DefaultMQPushConsumer(words[2]);
        member.setNamesrvAddr(words[1]);
        member.setInstanceName(name);
        member.setClientIP("127.0.0.1");
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setPollNameServerInterval(1000);
        member.setHeartbeatBrokerInterval(2000);
        member.setPersistConsumerOffsetInterval(1000);
        member.subscribe(words[3], String.join(" ", Arrays.copyOfRange(words, 5, words.length)));
        if (words[4].equals("broadcasting")) {
            broadcast(member);
        }
        if (words[4].equals("orderly")) {
            member.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                tell(name, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                tell(name, messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        member.start();
        members.put(name, member);
        return member.buildMQClientId();
    }

    // The enum lives elsewhere in each version.
    static void broadcast(DefaultMQPushConsumer member) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                Object[] models = method.getParameterTypes()[0].getEnumConstants();
                method.invoke(member, Arrays.stream(models).filter(m -> m.toString().equals("BROADCASTING")).findAny().get());
            }
        }
    }

    static void tell(String name, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            System.out.println(String.join(" ", "handled", name, Long.toString(System.currentTimeMillis()),
                Integer.toString(message.getReconsumeTimes()), message.getTopic(), message.getBrokerName(),
                Integer.toString(message.getQueueId()), text(message)));
        }
    }

    static String pull(String namesrv, String group, String topic, String expression) throws Exception {
        DefaultMQPullConsumer consumer = puller(namesrv, group);
        List<MessageExt> found = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long offset = 0;
            PullResult result = consumer.pull(queue, expression, offset, 32);
            while (result.getPullStatus() == PullStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
                offset = result.getNextBeginOffset();
                result = consumer.pull(queue, expression, offset, 32);
            }
            consumer.updateConsumeOffset(queue, result.getNextBeginOffset());
            consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, result.getNextBeginOffset(), false);
        }
        consumer.shutdown();
        return bodies(found);
    }

    static String poll(String namesrv, String group, String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("poll-" + group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(topic, "*");
        consumer.start();
        List<MessageExt> found = new ArrayList<>();
        long until = System.currentTimeMillis() + 40_000;
        while (found.size() < count && System.currentTimeMillis() < until) {
            found.addAll(consumer.poll(500));
        }
        consumer.commitSync();
        Thread.sleep(200);
        consumer.shutdown();
        return bodies(found);
    }

    static String bounds(String namesrv, String topic) throws Exception {
        DefaultMQPullConsumer consumer = puller(namesrv, "bounds");
        long first = 0;
        long last = 0;
        long since = 0;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            first += consumer.minOffset(queue);
            last += consumer.maxOffset(queue);
            since += consumer.searchOffset(queue, System.currentTimeMillis() - 3_600_000);
        }
        consumer.shutdown();
        return first + " " + last + " " + since;
    }

    static DefaultMQPullConsumer puller(String namesrv, String group) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("pull-" + group);
        consumer.start();
        return consumer;
    }

    static DefaultMQProducer producer(String namesrv) throws Exception {
        DefaultMQProducer producer = producers.get(namesrv);
        if (producer == null) {
            producer = new DefaultMQProducer("java_features");
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("producer-" + producers.size());
            producer.setPollNameServerInterval(1000);
            producer.start();
            producers.put(namesrv, producer);
        }
        return producer;
    }

    static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static String bodies(List<MessageExt> messages) {
        return messages.stream().map(Features::text).sorted().collect(Collectors.joining(" "));
    }
}
