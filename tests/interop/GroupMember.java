// The genuine Java client as others order it: commands on stdin, answers and handled messages on stdout.
//
//   NUMBER join NAME NAMESRV GROUP TOPIC STRATEGY MODE [most tries]   MODE: concurrent, asking, ordered, pop
//   NUMBER owns NAME
//   NUMBER leave NAME
//   NUMBER send NAMESRV TOPIC LEVEL BODY
//
// "asking" leaves the decision whose the queues are to the broker, as "pop" does.
// Each is answered by "= NUMBER answer". A message is told as
// "handled NAME millis tries topic broker queue body"; a body that begins with "fail-once" fails in
// its first try, one with "fail-always" in every try.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class GroupMember {
    static final Map<String, DefaultMQPushConsumer> members = new HashMap<>();
    static final Map<String, DefaultMQProducer> producers = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ready");
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.trim().split(" ");
            String answer;
            try {
                answer = obey(words);
            } catch (Exception error) {
                answer = "failed " + error;
            }
            System.out.println("= " + words[0] + " " + answer.replace('\n', ' '));
        }
        System.exit(0);
    }

    static String obey(String[] words) throws Exception {
        switch (words[1]) {
            case "join":
                return join(words);
            case "owns":
                return owns(members.get(words[2]));
            case "leave":
                members.remove(words[2]).shutdown();
                return "left";
            case "send":
                return send(words[2], words[3], Integer.parseInt(words[4]), words[5]);
            default:
                return "failed unknown order";
        }
    }

    static String join(String[] words) throws Exception {
        String name = words[2];
        String topic = words[5];
        DefaultMQPushConsumer member = new DefaultMQPushConsumer(words[4]);
        member.setNamesrvAddr(words[3]);
        member.setInstanceName(name);
        member.setClientIP("127.0.0.1");
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setPollNameServerInterval(1000);
        // A second after its start it may lose the heartbeat that tells of a rebalance, and then is
        // refused as "not latest" until the next one: by genuine brokers, too.
        member.setHeartbeatBrokerInterval(2000);
        member.setAllocateMessageQueueStrategy(strategy(words[6], topic));
        member.subscribe(topic, "*");
        if (words.length > 8) {
            member.setMaxReconsumeTimes(Integer.parseInt(words[8]));
        }
        if (words[7].equals("ordered")) {
            member.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                fails(name, messages) ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS);
        } else {
            member.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                fails(name, messages) ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        }
        if (words[7].equals("asking") || words[7].equals("pop")) {
            member.setClientRebalance(false);
        }
        if (words[7].equals("pop")) {
            // Its first pause after a failure is ten seconds, and no setting changes that.
            Field levels = DefaultMQPushConsumerImpl.class.getDeclaredField("popDelayLevel");
            levels.setAccessible(true);
            Arrays.fill((int[]) levels.get(member.getDefaultMQPushConsumerImpl()), 1);
        }
        member.start();
        members.put(name, member);
        return member.buildMQClientId();
    }

    static boolean fails(String name, List<MessageExt> messages) {
        boolean failed = false;
        for (MessageExt message : messages) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            System.out.println(String.join(" ", "handled", name, Long.toString(System.currentTimeMillis()),
                Integer.toString(message.getReconsumeTimes()), message.getTopic(), message.getBrokerName(),
                Integer.toString(message.getQueueId()), body));
            failed |= body.startsWith("fail-always") || body.startsWith("fail-once") && message.getReconsumeTimes() == 0;
        }
        return failed;
    }

    static String owns(DefaultMQPushConsumer member) {
        RebalanceImpl rebalance = member.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        Set<MessageQueue> queues = new HashSet<>(rebalance.getProcessQueueTable().keySet());
        queues.addAll(rebalance.getPopProcessQueueTable().keySet());
        return queues.stream().filter(q -> !q.getTopic().startsWith("%RETRY%"))
            .map(q -> q.getBrokerName() + "/" + q.getQueueId()).sorted().collect(Collectors.joining(" "));
    }

    static String send(String namesrv, String topic, int level, String body) throws Exception {
        DefaultMQProducer producer = producers.get(namesrv);
        if (producer == null) {
            producer = new DefaultMQProducer("java_producer");
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("producer-" + producers.size());
            producer.start();
            producers.put(namesrv, producer);
        }
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeLevel(level);
        return producer.send(message).getSendStatus().toString();
    }

    static AllocateMessageQueueStrategy strategy(String said, String topic) {
        String name = said.split(":")[0];
        String given = said.substring(said.indexOf(':') + 1);
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "CONFIG":
                List<MessageQueue> queues = new ArrayList<>();
                for (String queue : given.split(",")) {
                    String[] parts = queue.split("/");
                    queues.add(new MessageQueue(topic, parts[0], Integer.parseInt(parts[1])));
                }
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues);
                return config;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(Arrays.asList(given.split(","))));
                return rooms;
            case "MACHINE_ROOM_NEARBY-AVG":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms());
            case "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragelyByCircle(), new Rooms());
            case "STICKY":
            case "LAG_WEIGHTED":
                return new Decided(name);
            default:
                throw new IllegalArgumentException(said);
        }
    }

    // Only a broker can work it out: this is its name.
    record Decided(String getName) implements AllocateMessageQueueStrategy {
        @Override
        public List<MessageQueue> allocate(String group, String member, List<MessageQueue> queues, List<String> members) {
            throw new UnsupportedOperationException(getName);
        }
    }

    // A broker is named room@broker, and a member's instance room-member.
    static class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("@")[1].split("-")[0];
        }
    }
}
