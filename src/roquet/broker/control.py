"""ControlPlane: the part of the broker for settings, limits, statistics and registration."""

from random import Random

import msgspec

from roquet.broker.admission import Admission, RequestQuotas
from roquet.broker.services.registration import RegistrationTrigger
from roquet.broker.services.sampling import StatisticsSampler
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.statistics import Statistics
from roquet.net.clock import Clock
from roquet.net.limits.fair_share import FairShare


class ControlPlane(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, limits, statistics and registration; the clock and the source of chance."""

    settings: RuntimeSettings
    admission: Admission
    quotas: RequestQuotas
    statistics: Statistics
    sampler: StatisticsSampler
    registration: RegistrationTrigger
    slow_requests: FairShare
    """Requests that held up all others."""
    clock: Clock
    rng: Random
