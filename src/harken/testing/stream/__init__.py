"""The contract of a StreamSource: nothing lost, nothing doubled, every gap said. Authors run it on a broker of theirs.

class TestOrders(StreamContract):
    @pytest.fixture
    async def broker(self) -> AsyncIterator[Broker]: ...
"""

from harken.testing.stream.broker_interface import Broker
from harken.testing.stream.contract import StreamContract
from harken.testing.stream.stream_follower_process import Follower

__all__ = ["Broker", "Follower", "StreamContract"]
