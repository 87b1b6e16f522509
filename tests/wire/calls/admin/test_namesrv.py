from roquet.wire.calls.admin import namesrv


def test_the_codes_are_the_genuine_ones() -> None:
    kinds = (
        namesrv.WipeWritePermission, namesrv.AddWritePermission, namesrv.ForgetTopic,
        namesrv.RegisterTopic, namesrv.TopicsOfCluster, namesrv.SystemTopics, namesrv.UnitTopics,
        namesrv.UnitSubscribedTopics, namesrv.OthersSubscribedTopics,
        namesrv.UpdateNameServerSettings, namesrv.GetNameServerSettings, namesrv.GetBrokerMembers,
    )  # fmt: skip
    codes = [int(kind.code) for kind in kinds]
    assert codes == [205, 327, 216, 217, 224, 304, 311, 312, 313, 318, 319, 901]
