"""The front end of a known embedding is found, or the search says what it cannot tell.

The truths are made by another path: kaldi-native-fbank with options set here, the features given
to onnxruntime as any user would.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kaldi_native_fbank
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
import soundfile

from converters.audio import read_audio
from converters.frontend import log_mel, mean_subtracted
from converters.frontend_search import (
    CANDIDATES,
    LEAST,
    MARGIN,
    SETTINGS,
    Candidate,
    FrontendSearch,
    frontend_search,
)
from converters.manifest import Manifest
from fixtures import catalog
from graphtools.errors import UnsupportedError, UsageError

Array = npt.NDArray[Any]
Known = Callable[..., Path]

ENGINE = Candidate()
HIRES = Candidate("hamming", 32768, True, 0.97, False, (20.0, 7600.0))
PLAIN = Candidate("hann", 32768, False, 0.0, True, (0.0, 0.0))
QUIET = Candidate("povey", 1, False, 0.97, False, (0.0, 0.0))


def fbank(samples: Array, like: Candidate, window: str = "") -> Array:
    """[n] to [T, 80] with the settings of ``like``; ``window`` is another Kaldi window."""
    options = kaldi_native_fbank.FbankOptions()
    frame, mel = options.frame_opts, options.mel_opts
    frame.dither = 0
    frame.window_type = window or {"hann": "hanning"}.get(like.window, like.window)
    frame.preemph_coeff, frame.snip_edges = like.preemph, like.snip_edges
    mel.num_bins = 80
    mel.low_freq, mel.high_freq = like.band
    bank = kaldi_native_fbank.OnlineFbank(options)
    bank.accept_waveform(16000, [float(v) * like.scale for v in samples])
    bank.input_finished()
    found = np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])
    return found - found.mean(axis=0, dtype=np.float64).astype(np.float32) if like.cmn else found


@pytest.fixture
def known(tmp_path: Path) -> Known:
    """What a pipeline with these settings makes of a clip: the embedding, as a file."""

    def make(model: Path, like: Candidate, clip: Path = catalog.SPEECH, window: str = "") -> Path:
        session = onnxruntime.InferenceSession(str(model))
        features = fbank(read_audio(clip), like, window)[None]
        (found, *_) = session.run(None, {session.get_inputs()[0].name: features})
        np.save(tmp_path / "known.npy", found)
        return tmp_path / "known.npy"

    return make


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    """The clip under loud noise: no bin is near the energy floor."""
    samples = read_audio(catalog.SPEECH)
    noise = np.random.default_rng(0).normal(size=samples.shape)
    soundfile.write(tmp_path / "noisy.wav", samples + 0.05 * noise, 16000, "FLOAT")
    return tmp_path / "noisy.wav"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """An encoder of no known family that subtracts the mean itself: each bin's variance."""
    text = """
        <ir_version: 8, opset_import: ["" : 13]>
        encoder (float[1, T, 80] x) => (float[1, 80] y) {
            mean = ReduceMean <axes = [1]> (x)
            d = Sub (x, mean)
            square = Mul (d, d)
            y = ReduceMean <axes = [1], keepdims = 0> (square)
        }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "foreign.onnx")
    return tmp_path / "foreign.onnx"


def test_there_are_144_candidates_and_the_first_is_the_engines() -> None:
    assert len(set(CANDIDATES)) == 144
    assert CANDIDATES[0] == ENGINE
    assert {HIRES, PLAIN, QUIET} <= set(CANDIDATES)


def test_the_engines_is_what_the_replay_is_fed() -> None:
    samples = read_audio(catalog.SPEECH)
    np.testing.assert_array_equal(ENGINE.features(samples), mean_subtracted(log_mel(samples)))


class TestAnEmbedding:
    @pytest.mark.parametrize(
        ("name", "truth"),
        [
            ("resnet34_tiny", ENGINE),
            ("resnet34_tiny", HIRES),
            ("resnet34_tiny", PLAIN),
            ("eres2net_tiny", QUIET),
            ("campplus_tiny", ENGINE),
        ],
    )
    def test_ranks_the_front_end_that_made_it_first(
        self,
        known: Known,
        name: str,
        truth: Candidate,
        record_property: Callable[[str, object], None],
    ) -> None:
        model = catalog.path(name)
        found = frontend_search(catalog.SPEECH, model=model, embedding=known(model, truth))
        record_property("margin", found.margin)
        print(f"{name}, {truth}: margin {found.margin:.2g}")
        assert found
        assert found.best.candidate == truth
        assert found.best.score > 1.0 - 1e-6
        assert found.margin >= MARGIN
        assert len(found.ranking) == 144
        scores = [scored.score for scored in found.ranking]
        assert scores == sorted(scores, reverse=True)
        assert found.tied == (found.best,)
        assert found.gap == found.margin
        settings = [n for n in SETTINGS if getattr(truth, n) != getattr(ENGINE, n)]
        assert [*found.differs] == settings

    def test_may_come_from_either_segment_rule(self, known: Known) -> None:
        from graphtools.onnx_file import load
        from graphtools.runtime import Runner

        model = load(catalog.path("campplus_tiny"))
        features = fbank(read_audio(catalog.SPEECH), ENGINE)[None]
        for rule in ("kernel", "valid"):
            runner = Runner.of(model, [model.outputs[0].name], rule)
            (embedding,) = runner.run({model.inputs[0].name: features}).values()
            path = known(catalog.path("campplus_tiny"), ENGINE)
            np.save(path, embedding)
            found = frontend_search(catalog.SPEECH, model=model.path, embedding=path)
            assert found
            assert found.best.candidate == ENGINE
            assert found.best.seg_pool == rule

    @pytest.mark.slow
    def test_is_found_with_the_gguf_too(
        self,
        known: Known,
        manifest_of: Callable[[Path], Manifest],
        written: Callable[[Manifest, Path], Path],
        tmp_path: Path,
    ) -> None:
        model = catalog.path("campplus_tiny")
        gguf = written(manifest_of(model), tmp_path / "model.gguf")
        found = frontend_search(catalog.SPEECH, model=gguf, embedding=known(model, HIRES))
        assert found
        assert found.best.candidate == HIRES

    def test_of_a_model_of_one_length_leaves_out_other_numbers_of_frames(
        self, known: Known, edited: Callable[..., Path]
    ) -> None:
        def fixed(proto: onnx.ModelProto) -> None:
            proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 298

        model = edited("resnet34_tiny", fixed)
        found = frontend_search(catalog.SPEECH, model=model, embedding=known(model, ENGINE))
        assert found.best.candidate == ENGINE
        assert len(found.ranking) == 72

    def test_of_a_model_of_another_length_is_refused(
        self, known: Known, edited: Callable[..., Path]
    ) -> None:
        def fixed(proto: onnx.ModelProto) -> None:
            proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 200

        path = known(catalog.path("resnet34_tiny"), ENGINE)
        with pytest.raises(UnsupportedError, match="one length only") as error:
            frontend_search(catalog.SPEECH, model=edited("resnet34_tiny", fixed), embedding=path)
        assert error.value.found == "298 or 300"


class TestARefusal:
    def test_of_two_that_give_the_same_features(self, known: Known, noisy: Path) -> None:
        """The mean subtraction takes a factor out again, but for the energy floor."""
        model = catalog.path("resnet34_tiny")
        found = frontend_search(noisy, model=model, embedding=known(model, ENGINE, noisy))
        assert not found
        assert found.reproduced
        assert found.margin < MARGIN
        assert found.open == {"scale": (1, 32768)}
        assert len(found.tied) == 2
        assert found.gap >= MARGIN
        assert "digital silence" in found.advice[0]

    def test_of_two_that_the_model_cannot_tell_apart(self, known: Known, foreign: Path) -> None:
        found = frontend_search(catalog.SPEECH, model=foreign, embedding=known(foreign, ENGINE))
        assert not found
        assert found.open["cmn"] == (True, False)

    def test_where_none_of_them_made_it_however_far_the_best_is_ahead(self, known: Known) -> None:
        model = catalog.path("resnet34_tiny")
        path = known(model, ENGINE, window="blackman")
        found = frontend_search(catalog.SPEECH, model=model, embedding=path)
        assert found.margin >= MARGIN
        assert 0.99 < found.best.score < LEAST
        assert not found
        assert not found.reproduced


class TestFeatures:
    @pytest.mark.parametrize("truth", [ENGINE, HIRES, PLAIN, QUIET])
    def test_rank_the_front_end_that_made_them_first(
        self, tmp_path: Path, truth: Candidate
    ) -> None:
        found = self.of(tmp_path, fbank(read_audio(catalog.SPEECH), truth))
        assert found
        assert found.best.candidate == truth
        assert found.best.score > 1 - 1e-9

    @pytest.mark.parametrize("form", ["transposed", "batch", "half"])
    def test_are_read_in_any_form(self, tmp_path: Path, form: str) -> None:
        values = fbank(read_audio(catalog.SPEECH), HIRES)
        forms = {"transposed": values.T, "batch": values[None], "half": values.astype(np.float16)}
        found = self.of(tmp_path, forms[form])
        assert found
        assert found.best.candidate == HIRES

    def test_tell_a_factor_where_nothing_else_does(self, tmp_path: Path, noisy: Path) -> None:
        """Without a mean subtraction it is an offset, which a cosine hardly sees."""
        truth = Candidate(cmn=False)
        found = self.of(tmp_path, fbank(read_audio(noisy), truth), noisy)
        assert found
        assert found.best.candidate == truth
        scaled = next(s for s in found.ranking if s.candidate == Candidate(cmn=False, scale=32768))
        assert scaled.score < 0.0
        assert scaled.difference is not None
        assert scaled.difference.max_abs == pytest.approx(2 * np.log(32768), rel=1e-3)

    def test_with_a_mean_subtracted_leave_it_open(self, tmp_path: Path, noisy: Path) -> None:
        found = self.of(tmp_path, fbank(read_audio(noisy), ENGINE), noisy)
        assert not found
        assert [*found.open] == ["scale"]

    @pytest.mark.parametrize(
        ("values", "cause"),
        [
            (np.zeros((298, 80)), "all one number"),
            (np.ones((297, 80)), "not of this clip"),
            (np.ones(298), "not of this clip"),
            (np.ones((2, 298, 80)), "not of this clip"),
            (np.eye(298, 200), "no such filter bank"),
        ],
    )
    def test_that_cannot_be_are_refused(self, tmp_path: Path, values: Array, cause: str) -> None:
        with pytest.raises(UnsupportedError, match=cause):
            self.of(tmp_path, values)

    def of(self, folder: Path, values: Array, clip: Path = catalog.SPEECH) -> FrontendSearch:
        np.save(folder / "features.npy", values)
        return frontend_search(clip, features=folder / "features.npy")


class TestWrongCalls:
    @pytest.mark.parametrize("given", [(), ("embedding",), ("model",), ("features", "embedding")])
    def test_name_one_thing_that_is_known(self, tmp_path: Path, given: tuple[str, ...]) -> None:
        np.save(tmp_path / "x.npy", np.ones(32))
        paths = dict.fromkeys(given, tmp_path / "x.npy")
        with pytest.raises(UsageError, match="one thing has to be known"):
            frontend_search(catalog.SPEECH, **paths)

    @pytest.mark.parametrize(
        ("values", "cause"),
        [
            (np.ones((2, 32)), "holds no embedding"),
            (np.zeros(32), "holds no embedding"),
            (np.ones(0), "holds no embedding"),
            (np.float32(1), "holds no embedding"),
            (np.ones(31), "another length than the known one"),
        ],
    )
    def test_embedding(self, tmp_path: Path, values: Array, cause: str) -> None:
        np.save(tmp_path / "known.npy", values)
        model = catalog.path("resnet34_tiny")
        with pytest.raises(UnsupportedError, match=cause):
            frontend_search(catalog.SPEECH, model=model, embedding=tmp_path / "known.npy")

    def test_silence(self, tmp_path: Path) -> None:
        soundfile.write(tmp_path / "silence.wav", np.zeros(16000), 16000)
        np.save(tmp_path / "f.npy", np.ones((98, 80)))
        with pytest.raises(UnsupportedError, match="the clip is silent"):
            frontend_search(tmp_path / "silence.wav", features=tmp_path / "f.npy")

    def test_model(self, tmp_path: Path) -> None:
        np.save(tmp_path / "known.npy", np.ones(32))
        text = """
            <ir_version: 8, opset_import: ["" : 13]>
            of_samples (float[1, N] x) => (float[1, N] y) { y = Identity (x) }
        """
        onnx.save(onnx.parser.parse_model(text), tmp_path / "samples.onnx")
        for model, kind, cause in (
            (tmp_path / "absent.onnx", UsageError, "no such file"),
            (tmp_path / "samples.onnx", UnsupportedError, "takes no features"),
            (tmp_path, UnsupportedError, "a checkpoint is not run"),
        ):
            with pytest.raises(kind, match=cause):
                frontend_search(catalog.SPEECH, model=model, embedding=tmp_path / "known.npy")


class TestTheCommand:
    def test_says_that_it_is_the_engines(self, known: Known, invoke: Callable[..., Any]) -> None:
        model = catalog.path("resnet34_tiny")
        clip = ("--audio", catalog.SPEECH)
        ran = invoke("frontend", model, *clip, "--embedding", known(model, ENGINE), code=0)
        assert "decided: it is the engine's front end" in ran.out
        lines = ran.out.splitlines()
        assert len(lines) == 14  # a title, the columns, ten rows, the margin and the decision
        assert lines[2].split() == ["1.000000", "povey", "1", "yes", "0.97", "yes", "20-8000"]

    def test_says_where_it_is_not(self, known: Known, invoke: Callable[..., Any]) -> None:
        model = catalog.path("resnet34_tiny")
        clip = ("--audio", catalog.SPEECH)
        ran = invoke("frontend", model, *clip, "--embedding", known(model, HIRES), code=0)
        assert "window: hamming, the engine's povey" in ran.out
        assert "band Hz: 20-7600, the engine's 20-8000" in ran.out
        assert "pre-emphasis:" not in ran.out

    def test_refuses_with_what_is_open_and_what_would_settle_it(
        self, known: Known, noisy: Path, invoke: Callable[..., Any]
    ) -> None:
        model = catalog.path("resnet34_tiny")
        path = known(model, ENGINE, noisy)
        ran = invoke("frontend", model, "--audio", noisy, "--embedding", path, code=1)
        assert "undecided: the best two are less than 0.0001 apart, and differ in" in ran.out
        assert "scale: 1, 32768. To settle it take a clip with digital silence" in ran.out

    def test_refuses_where_none_made_it(self, known: Known, invoke: Callable[..., Any]) -> None:
        model = catalog.path("resnet34_tiny")
        path = known(model, ENGINE, window="blackman")
        ran = invoke("frontend", model, "--audio", catalog.SPEECH, "--embedding", path, code=1)
        assert "undecided: none of these; the best scores 0.99" in ran.out

    def test_prints_the_result_as_json(self, tmp_path: Path, invoke: Callable[..., Any]) -> None:
        np.save(tmp_path / "f.npy", fbank(read_audio(catalog.SPEECH), HIRES))
        ran = invoke("frontend", "--audio", catalog.SPEECH, "--features", "f.npy", "--json", code=0)
        assert ran.json["decided"] is True
        assert ran.json["ranking"][0] | {"score": 1.0} == {
            **HIRES.to_json(),
            "score": 1.0,
            "seg_pool": None,
            "max_abs": pytest.approx(0.0, abs=1e-5),
            "cosine": pytest.approx(1.0),
        }
        assert len(ran.json["ranking"]) == 72
