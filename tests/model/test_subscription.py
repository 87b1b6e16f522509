import msgspec

from roquet.model.subscription import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    Subscription,
)


def test_a_subscription_takes_everything_unless_told_otherwise() -> None:
    everything = Subscription(topic="orders")
    assert (everything.sub_string, everything.expression_type) == ("*", "TAG")
    assert (everything.tags_set, everything.code_set) == ([], [])


def test_its_json_is_javas() -> None:
    java = (
        b'{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG","subString":"subString1",'
        b'"subVersion":46427,"tagsSet":["tagsSet2"],"topic":"Topic1"}'
    )
    subscription = msgspec.json.decode(java, type=Subscription)
    assert subscription.code_set == [65]
    assert msgspec.json.encode(subscription, order="sorted") == java


def test_a_heartbeat_names_producers_and_consumers() -> None:
    java = b"""{"clientID":"10.0.0.9@7#1","consumerDataSet":[{"consumeFromWhere":
    "CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"billing",
    "messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":"orders","subString":"*"}],
    "unitMode":false}],"producerDataSet":[{"groupName":"shop"}]}"""
    assert msgspec.json.decode(java, type=HeartbeatData) == HeartbeatData(
        client_id="10.0.0.9@7#1",
        producer_data_set=[ProducerData(group_name="shop")],
        consumer_data_set=[
            ConsumerData(
                group_name="billing",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                subscription_data_set=[Subscription(topic="orders")],
            )
        ],
    )


def test_fields_that_apaches_clients_omit_are_none() -> None:
    assert ConsumerData(group_name="g").strategy is None


def test_the_clients_id_keeps_javas_spelling() -> None:
    assert b'"clientID":"c"' in msgspec.json.encode(HeartbeatData(client_id="c"))


def test_members_of_an_enum_stand_where_java_counts_them() -> None:
    assert list(ConsumeType).index(ConsumeType.CONSUME_PASSIVELY) == 1
    assert list(MessageModel).index(MessageModel.CLUSTERING) == 1
    assert list(ConsumeFromWhere).index(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET) == 0
