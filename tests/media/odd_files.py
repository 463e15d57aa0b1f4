"""Files as they come from phones, broadcasts, broken downloads and people who mean no good; all made here.

In the clips, frame n is grey with a brightness of 20 + 10 n, at 10 frames per second, if nothing else is
said.
"""

from __future__ import annotations

import io
import os
import shutil
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from media.clips import STEP, grey_frames, turn_clockwise, write_clip, write_sound
from media.sounds import write_media
from PIL import Image

FPS = 10
_GOPS_OF_TEN = {"x264-params": "keyint=10:min-keyint=10:scenecut=0:bframes=0"}


def grainy_frames(count: int, *, every: int = 20) -> list[np.ndarray]:
    """Grey with grain, so that a file has bytes to lose; frame n is as bright as frame n modulo ``every``."""
    grain = np.random.default_rng(0).integers(-18, 19, (count, 48, 64, 1))
    return [np.uint8(20 + STEP * (n % every) + grain[n]).repeat(3, axis=2) for n in range(count)]


def variable_rate(folder: Path) -> Path:
    """Ten frames in the first second, then one that stays for two seconds."""
    return write_clip(folder / "vfr.mp4", grey_frames(12), at_ms=[*range(0, 1000, 100), 1000, 3000])


def turned(folder: Path) -> Path:
    """Held upright: the display matrix says 90 degrees."""
    lying = write_clip(folder / "lying.mp4", grey_frames(20, size=(64, 96)))
    return turn_clockwise(lying, folder / "phone.mp4", degrees=90)


def turned_to_odd_width(folder: Path) -> Path:
    """48 pixels wide when upright: decord miscounts the bytes of its lines."""
    lying = write_clip(folder / "lying.mp4", grey_frames(20, size=(48, 64)))
    return turn_clockwise(lying, folder / "narrow.mp4", degrees=90)


def av1(folder: Path) -> Path:
    os.environ.setdefault("SVT_LOG", "0")  # or it writes a page to stderr
    frames = grey_frames(20, size=(64, 64))
    return write_clip(folder / "av1.mp4", frames, codec="libsvtav1", options={"preset": "11"})


def hevc_of_10_bits(folder: Path) -> Path:
    options = {"preset": "ultrafast", "x265-params": "log-level=none:pools=1"}
    frames = grey_frames(20, size=(64, 64))
    path = folder / "hevc.mp4"
    return write_clip(path, frames, codec="libx265", pixels_as="yuv420p10le", options=options)


def vp9(folder: Path) -> Path:
    return write_clip(folder / "vp9.webm", grey_frames(20), codec="libvpx-vp9")


def flash(folder: Path) -> Path:
    """Its packets do not say how long a frame is shown."""
    return write_clip(folder / "old.flv", grey_frames(20), codec="flv")


def animated(folder: Path) -> Path:
    """A GIF."""
    return write_clip(folder / "moving.gif", grey_frames(20), codec="gif", pixels_as="rgb8")


def silent(folder: Path) -> Path:
    """No sound track."""
    return write_clip(folder / "silent.mp4", grey_frames(20))


def with_silent_track(folder: Path) -> Path:
    return write_media(folder / "quiet.mp4", samples=np.zeros(16_000, np.float32), frames=grey_frames(20))


def sound_alone(folder: Path) -> Path:
    return write_sound(folder / "song.mp4")


def sound_with_cover(folder: Path) -> Path:
    """A song; its cover is a video stream of one picture."""
    path = folder / "song.m4a"
    with av.open(str(path), "w", format="mp4") as container:
        sound, cover = container.add_stream("aac", rate=16000), container.add_stream("mjpeg", rate=1)
        sound.layout = "mono"
        cover.height, cover.width, cover.pix_fmt = 48, 64, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, 0
        picture = av.VideoFrame.from_ndarray(grey_frames(1)[0], format="rgb24")
        for stream, content in ((sound, frame), (cover, picture)):
            container.mux(stream.encode(content))
            container.mux(stream.encode())
    return path


def one_frame(folder: Path) -> Path:
    return write_clip(folder / "one.mp4", grey_frames(1))


def no_frame(folder: Path) -> Path:
    """A header, and nothing behind it."""
    path = folder / "none.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        container.start_encoding()
    return path


def half(path: Path) -> Path:
    """The file, cut in the middle."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def truncated_mp4(folder: Path) -> Path:
    """A download that broke off; the index stands in front."""
    return half(write_clip(folder / "half.mp4", grainy_frames(20), movflags="faststart"))


def truncated_before_index(folder: Path) -> Path:
    """A recording that broke off: the index would stand at the end."""
    return half(write_clip(folder / "no_index.mp4", grainy_frames(20)))


def truncated_webm(folder: Path) -> Path:
    return half(write_clip(folder / "half.webm", grainy_frames(20), codec="libvpx-vp9"))


def overcounting_header(folder: Path) -> Path:
    """An AVI whose header counts 1,000 frames, and which holds 20."""
    path = write_clip(folder / "counts.avi", grey_frames(20), codec="mpeg4")
    content = bytearray(path.read_bytes())
    content[content.find(b"avih") + 24 :][:4] = struct.pack("<I", 1000)
    for name, place in ((b"avih", 24), (b"strh", 40)):
        at = content.find(name) + place
        assert struct.unpack_from("<I", content, at) == (20,)
        struct.pack_into("<I", content, at, 1000)
    path.write_bytes(content)
    return path


def overcounting_index(folder: Path) -> Path:
    """An MP4 whose index lists 40 frames, of which 20 decode."""
    path = write_clip(folder / "lists.mp4", grainy_frames(40), options=_GOPS_OF_TEN)
    return damaged(path, range(20, 40))


def rotten(folder: Path) -> Path:
    """Frames 12 and 13 of 40 are lost, and with them those that refer to them, up to the key frame at 20."""
    path = write_clip(folder / "rotten.mp4", grainy_frames(40), options=_GOPS_OF_TEN)
    return damaged(path, range(12, 14))


def damaged(path: Path, frames: range) -> Path:
    """The file, with nothing but zeros in the packets of these frames."""
    content = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        shown = [p for p in container.demux(container.streams.video[0]) if p.pts is not None]
    shown.sort(key=lambda packet: packet.pts)
    for packet in shown[frames.start : frames.stop]:
        content[packet.pos : packet.pos + packet.size] = bytes(packet.size)
    path.write_bytes(content)
    return path


def edited(folder: Path) -> Path:
    """Two seconds, the first of which an edit list hides; cut so by a phone, without encoding again."""
    path, whole = folder / "cut.mp4", write_clip(folder / "whole.mp4", grey_frames(20))
    with (
        av.open(str(whole)) as source,
        av.open(str(path), "w", options={"avoid_negative_ts": "disabled"}) as target,
    ):
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                second = int(1 / packet.time_base)
                packet.pts, packet.dts, packet.stream = packet.pts - second, packet.dts - second, stream
                target.mux(packet)
    return path


def misnamed(folder: Path) -> Path:
    """An MP4 that is called .webm."""
    return Path(shutil.copy(variable_rate(folder), folder / "wrong.webm"))


def called_a_picture(folder: Path) -> Path:
    """An MP4 that is called .jpg."""
    return Path(shutil.copy(variable_rate(folder), folder / "clip.jpg"))


def animated_webp(folder: Path) -> Path:
    """FFmpeg does not read them yet."""
    first, *others = [Image.fromarray(one) for one in grey_frames(5)]
    first.save(folder / "moving.webp", save_all=True, append_images=others, duration=100)
    return folder / "moving.webp"


def strange_name(folder: Path) -> Path:
    """Spaces, letters of three scripts, and what shells, URLs and FFmpeg take for syntax."""
    return Path(shutil.copy(variable_rate(folder), folder / "a:b видео 猫 é #t=1,%20'.mp4"))


def linked(folder: Path) -> Path:
    path = folder / "link.mp4"
    path.symlink_to(variable_rate(folder))
    return path


def still_picture(folder: Path) -> Path:
    """A JPEG in place of a clip."""
    path = folder / "still.mp4"
    Image.fromarray(grey_frames(4)[3]).save(path, format="jpeg")
    return path


def four_k(folder: Path) -> Path:
    """3,840 × 2,160, five frames at 2 a second."""
    frames = grey_frames(5, size=(2160, 3840))
    return write_clip(folder / "4k.mp4", frames, fps=2, options={"preset": "ultrafast"})


def three_hours(folder: Path) -> Path:
    """108,000 frames, a key frame every 6 seconds; frame n is as bright as 20 + 3 (n modulo 60)."""
    group = io.BytesIO()
    with av.open(group, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        stream.options = {"x264-params": "keyint=60:min-keyint=60:scenecut=0:bframes=0"}
        for number in range(60):
            picture = np.full((48, 64, 3), 20 + 3 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    group.seek(0)
    path = folder / "film.mp4"
    with av.open(group) as source, av.open(str(path), "w") as target:
        pictures = source.streams.video[0]
        stream = target.add_stream_from_template(pictures)
        once = [(bytes(one), one.is_keyframe) for one in source.demux(pictures) if one.pts is not None]
        for number in range(3 * 3600 * FPS):
            content, key = once[number % 60]
            packet = av.Packet(content)
            packet.stream, packet.time_base, packet.duration = stream, Fraction(1, FPS), 1
            packet.pts = packet.dts = number
            packet.is_keyframe = key
            target.mux(packet)
    return path


def enormous(folder: Path) -> Path:
    """A GIF of 2 KB that says its screen has 225 million pixels: a gigabyte as soon as it is drawn."""
    path = write_clip(folder / "bomb.gif", grey_frames(2), codec="gif", pixels_as="rgb8")
    content = bytearray(path.read_bytes())
    struct.pack_into("<HH", content, 6, 15_000, 15_000)
    path.write_bytes(content)
    return path


def web_page(folder: Path) -> Path:
    """What a download gives that was refused."""
    path = folder / "page.mp4"
    path.write_text("<html>Not found</html>\n" * 50)
    return path


def noise(folder: Path) -> Path:
    path = folder / "noise.mp4"
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    return path


def playlist(folder: Path, address: str) -> Path:
    """A list of addresses, as players fetch them; nothing may be fetched."""
    path = folder / "stream.m3u8"
    path.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{address}\n#EXT-X-ENDLIST\n")
    return path


def empty(folder: Path) -> Path:
    path = folder / "empty.mp4"
    path.touch()
    return path


def folder_called_clip(folder: Path) -> Path:
    path = folder / "folder.mp4"
    path.mkdir()
    return path


def broken_link(folder: Path) -> Path:
    path = folder / "gone.mp4"
    path.symlink_to("moved_away.mp4")
    return path


def named_pipe(folder: Path) -> Path:
    """Whoever opens it waits for ever."""
    path = folder / "pipe.mp4"
    os.mkfifo(path)
    return path


def name_of_other_bytes(folder: Path) -> Path:
    """A name in Latin-1, from an old archive."""
    path = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.mp4"))
    shutil.copy(variable_rate(folder), path)
    return path
