"""Decodes uploads in processes of their own, which are ended where a photo costs too much."""

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import numpy as np
from fastapi import UploadFile

from captioning.data.decoder import COMMAND, LENGTH, DecodedUpload, Job
from captioning.data.images import PhotoSizeError, UnknownFormatError, Upload
from captioning.data.preprocessing import Preprocessing, View
from captioning.errors import InputError
from captioning.serving.fair_pool import FairPool
from captioning.serving.protection import Limits

PROCESSES = 2
QUICK = 1.0
"""Seconds for a photo at first. One that fails within these limits is decoded again with more time
and memory, and only one such photo at a time, so that a process and memory stay free for others."""

MEMORY = 30_000_000  # bytes for what a photo needs besides its pixels
PIXEL_MEMORY = 7, 18
"""Bytes for each pixel that a photo may have, at first and again: of a progressive JPEG, and of a
lossless WebP or a 16-bit PNG."""

LONGEST_NAME = 100  # characters of a file's name that an error repeats
LARGEST_ANSWER = 2**24  # bytes


class Decoders:
    """Processes that decode uploads; they start with the block `running`, or with the first ones.

    Args:
        limits: of requests.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoders = [_Decoder() for _ in range(PROCESSES)]
        self._pool = FairPool(self._decoders)
        self._second_tries = FairPool([None])  # one at a time

    @asynccontextmanager
    async def running(self, app: object = None) -> AsyncIterator[None]:
        """Start the processes, and end them after the block, which is a server's lifespan."""
        for decoder in self._decoders:
            await decoder.start()
        yield
        async with AsyncExitStack() as loans:  # when none is in use
            for _ in self._decoders:
                decoder = await loans.enter_async_context(self._pool.lend("server"))
                await decoder.end()

    async def decode(
        self, upload: UploadFile, preprocessing: Preprocessing, long_side: int, client: str
    ) -> tuple[View, str]:
        """The upload as the model sees it, and as a JPEG in a data URI, which is empty for side 0.

        Raises:
            UnknownFormatError: it is in no format that is taken.
            PhotoSizeError: it has too many pixels, or takes too long.
            InputError: it is damaged.
        """
        name, side = (upload.filename or "photo")[-LONGEST_NAME:], preprocessing.size

        async def answer(seconds: float, pixel_memory: int) -> DecodedUpload | InputError:
            memory = MEMORY + pixel_memory * self._limits.pixels
            async with self._pool.lend(client) as decoder:
                await upload.seek(0)
                photo = Upload(name, await upload.read(), self._limits.pixels)
                job = Job(photo, side, preprocessing.fit, long_side, memory)
                return await decoder.answer(job, seconds)

        seconds = self._limits.decoding_seconds
        decoded = await answer(min(QUICK, seconds), PIXEL_MEMORY[0])
        if isinstance(decoded, InputError) and not isinstance(decoded, UnknownFormatError):
            async with self._second_tries.lend(client):
                decoded = await answer(seconds, PIXEL_MEMORY[1])
        if isinstance(decoded, InputError):
            raise decoded
        square = np.frombuffer(bytearray(decoded.pixels), np.uint8).reshape(side, side, 3)
        return View.of(square, decoded.crop, decoded.size), decoded.jpeg


class _Decoder:
    """Decodes one upload at a time, in a process that starts again after it was ended."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._is_ready = False

    async def start(self) -> Process:
        """Start the process unless it runs."""
        if self._process is None:
            self._is_ready = False
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", COMMAND),
                stdin=PIPE,
                stdout=PIPE,
                limit=LARGEST_ANSWER,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the server
            )
        return self._process

    async def answer(self, job: Job, seconds: float) -> DecodedUpload | InputError:
        """The upload, or why it has none; the process is ended if it takes longer or crashes."""
        try:
            process = await self.start()
            if not self._is_ready:
                await _message(process)
                self._is_ready = True
            async with asyncio.timeout(seconds):
                assert process.stdin
                process.stdin.write(pickle.dumps(job))
                await process.stdin.drain()
                answer: DecodedUpload | InputError = pickle.loads(await _message(process))
                return answer
        except BaseException as error:  # such as the cancellation of a client that has gone
            has_crashed = self._is_ready and isinstance(
                error, asyncio.IncompleteReadError | ConnectionError
            )
            await self.end()
            await self.start()  # the next photo need not wait for it
            if isinstance(error, TimeoutError):
                return PhotoSizeError(
                    f"{job.upload}: takes more than {seconds:g} seconds to decode; send a smaller "
                    "copy"
                )
            if has_crashed:
                return InputError(f"{job.upload}: damaged; copy or download the photo again")
            raise

    async def end(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process:
            with suppress(ProcessLookupError):  # it has ended itself
                process.kill()
            await process.wait()


async def _message(process: Process) -> bytes:
    assert process.stdout
    length = int.from_bytes(await process.stdout.readexactly(LENGTH))
    return await process.stdout.readexactly(length)
