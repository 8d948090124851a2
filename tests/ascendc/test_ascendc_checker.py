"""Rules that the one-line mutants do not reach, what the reports look like, and legal programs that must stay without one."""

import re

import numpy as np
import pytest
from ascendc_paths import EXAMPLES

from anycann import ascendc

QUEUES = """
    AscendC::TPipe pipe;
    AscendC::TQue<AscendC::QuePosition::VECIN, 1> in;
    AscendC::TQue<AscendC::QuePosition::VECOUT, 1> out;
    AscendC::TBuf<AscendC::QuePosition::VECCALC> buffer;
    AscendC::GlobalTensor<float> xGm, yGm;
    xGm.SetGlobalBuffer((__gm__ float*)x, 64);
    yGm.SetGlobalBuffer((__gm__ float*)y, 64);
    pipe.InitBuffer(in, 1, 256);
    pipe.InitBuffer(out, 1, 256);
    pipe.InitBuffer(buffer, 256);
    AscendC::LocalTensor<float> t = buffer.Get<float>();
"""


def arrays():
    return np.arange(64, dtype=np.float32), np.zeros(64, np.float32)


def reports(module, blocks=1, **options):
    with pytest.raises(ascendc.KernelError) as caught:
        module.kernel[blocks](*arrays(), **options)
    return caught.value.reports


CASES = {
    "event id that the product lacks": ("AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(8);", "event-id", "this product has 8 per event"),
    "set and never waited for": (
        "AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(0);",
        "set-without-wait",
        "nothing waited for it before the kernel ended",
    ),
    "set twice": (
        """AscendC::SetFlag<AscendC::HardEvent::V_S>(0); AscendC::SetFlag<AscendC::HardEvent::V_S>(0);
        AscendC::WaitFlag<AscendC::HardEvent::V_S>(0);""",
        "flag-set-twice",
        "set a second time before anything waited",
    ),
    "waited for and not set": ("AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(0);", "wait-without-set", "it would hang"),
    "ids run out": (
        "for (int i = 0; i < 9; ++i) { pipe.AllocEventID<AscendC::HardEvent::V_S>(); }",
        "event-id",
        "all 8 event ids of V_S are in use",
    ),
    "released and not taken": ("pipe.ReleaseEventID<AscendC::HardEvent::V_S>(2);", "event-id", "was not allocated"),
    "two pipes": ("AscendC::TPipe second;", "one-pipe", "a second TPipe is made while the first still lives"),
    "too many lanes": ("AscendC::Adds(t, t, 1.0f, 65, 1, {1, 1, 8, 8});", "mask", "1 to 64 lanes"),
    "too many repeats": ("AscendC::Adds(t, t, 1.0f, 64, 256, {1, 1, 0, 0});", "mask", "repeatTimes must be 0 to 255; got 256"),
    "a buffer cut too long": (
        "buffer.GetWithOffset<float>(32, 192);",
        "tensor-range",
        "128 bytes from byte 192 were asked of a buffer of 256",
    ),
    "a buffer of less than nothing": ("buffer.Get<int8_t>(-1);", "tensor-range", "-1 bytes from byte 0 were asked of a buffer of 256"),
    "a scalar past the end": ("t.SetValue(64, 1.0f);", "tensor-range", "of a tensor of 256 bytes"),
    "a negative offset": ("AscendC::Duplicate(t[-8], 1.0f, 8);", "tensor-range", "Duplicate writes bytes 0 to 31 of a tensor"),
    "no bytes": ("AscendC::TBuf<> none; pipe.InitBuffer(none, 0);", "buffer-count", "it must be more than 0"),
    "assert": ("ASSERT(AscendC::GetBlockNum() == 7);", "assert", "AscendC::GetBlockNum() == 7 does not hold"),
    "copy into the unknown": (
        "xGm.SetGlobalBuffer((__gm__ float*)0x1000, 64); AscendC::DataCopy(t, xGm, 64);",
        "gm-range",
        "in none of the kernel's arguments",
    ),
    "flag between the wrong pipes": (
        """AscendC::DataCopy(t, xGm, 64);
        AscendC::SetFlag<AscendC::HardEvent::MTE2_MTE3>(0); AscendC::WaitFlag<AscendC::HardEvent::MTE2_MTE3>(0);
        AscendC::Adds(t, t, 1.0f, 64);""",
        "missing-sync",
        "Adds (pipe V) reads UB bytes 0 to 31 of the buffer that DataCopy (pipe MTE2) wrote",
    ),
    "barrier of one pipe only": (
        "AscendC::DataCopy(t, xGm, 64); AscendC::PipeBarrier<PIPE_V>(); AscendC::Adds(t, t, 1.0f, 64);",
        "missing-sync",
        "SetFlag<HardEvent::MTE2_V>",
    ),
    "written over while it is read": (
        """AscendC::Duplicate(t, 1.0f, 64); AscendC::PipeBarrier<PIPE_ALL>(); AscendC::DataCopy(yGm, t, 64);
        AscendC::Duplicate(t, 2.0f, 64);""",
        "missing-sync",
        "Duplicate (pipe V) writes UB bytes 0 to 31 of the buffer that DataCopy (pipe MTE3) reads",
    ),
    "read back before it is written": (
        """AscendC::Duplicate(t, 1.0f, 64); AscendC::PipeBarrier<PIPE_ALL>(); AscendC::DataCopy(yGm, t, 64);
        AscendC::LocalTensor<float> u = in.AllocTensor<float>(); AscendC::DataCopy(u, yGm, 64); in.FreeTensor(u);""",
        "missing-sync",
        "global memory (y, byte 0)",
    ),
    "scalar after vector": ("AscendC::Duplicate(t, 1.0f, 64); t.GetValue(3);", "missing-sync", "GetValue (pipe S) reads"),
    "gather past the end": (
        """AscendC::Duplicate(t, 1.0f, 64); AscendC::LocalTensor<int32_t> i = in.AllocTensor<int32_t>(); AscendC::CreateVecIndex(i, 63, 8);
        AscendC::Muls(i, i, 4, 8);
        AscendC::LocalTensor<float> u = out.AllocTensor<float>(); AscendC::Gather(u, t, i.ReinterpretCast<uint32_t>(), 0, 8);""",
        "tensor-range",
        "Gather reads bytes 256 to 259",
    ),
    "a cast in place to wider elements": (
        """AscendC::LocalTensor<half> h = buffer.Get<half>(32); AscendC::Duplicate(h, half(1), 32);
        AscendC::Cast(t, h, AscendC::RoundMode::CAST_NONE, 32);""",
        "overlap",
        "the destination begins where a source does, and its elements lie elsewhere",
    ),
    "a cast into the second half of its source": (
        """AscendC::LocalTensor<half> h = buffer.GetWithOffset<half>(64, 128); AscendC::Duplicate(t, 1.0f, 64);
        AscendC::Cast(h, t, AscendC::RoundMode::CAST_NONE, 64);""",
        "overlap",
        "the destination overlaps a source that starts -128 bytes away",
    ),
    "a repeat that reads what the one before wrote": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::Adds(t[16], t, 1.0f, 16, 3, {1, 1, 2, 2});",
        "overlap",
        "the destination overlaps a source that starts -64 bytes away",
    ),
    "lanes that read what others write": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::Adds(t, t[8], 1.0f, 32, 1, {1, 1, 8, 8});",
        "overlap",
        "the destination overlaps a source that starts 32 bytes away",
    ),
    "a source that every repeat reads again": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::Add(t, t, t, 8, 4, {1, 1, 1, 1, 1, 0});",
        "overlap",
        "its elements lie elsewhere",
    ),
    "atomic addition of another type": (
        """AscendC::GlobalTensor<int32_t> gm; gm.SetGlobalBuffer((__gm__ int32_t*)y, 64); AscendC::Duplicate(t, 1.0f, 64);
        AscendC::PipeBarrier<PIPE_ALL>(); AscendC::SetAtomicAdd<float>(); AscendC::DataCopy(gm, t.ReinterpretCast<int32_t>(), 8);""",
        "parameter",
        "SetAtomicAdd was called for elements of type float, the copy has elements of type int32_t",
    ),
    "source reuse": (
        """AscendC::DataCopy(t, xGm, 64); AscendC::PipeBarrier<PIPE_ALL>();
        LayerNormGradBetaTiling g{16, 1, 4, 8, 8, 32, 4, 16, 1, 2, 0, 32, 0, 16, 2};
        AscendC::LocalTensor<float> a = in.AllocTensor<float>(), b = out.AllocTensor<float>();
        AscendC::LayerNormGradBeta<float, true>(a, b, t, t[32], g); AscendC::Adds(t[32], t[32], 1.0f, 32);
        in.FreeTensor(a); out.FreeTensor(b);""",
        "read-unwritten",
        "nothing has written byte 128 since",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(make, name):
    body, rule, text = CASES[name]
    found = reports(make(QUEUES + body))
    assert rule in {report.rule for report in found}
    assert any(text in report.what or text in report.advice for report in found if report.rule == rule), [report.what for report in found]


TOGETHER = {
    "a padded copy to an odd place": (
        "AscendC::DataCopyPad(t[1], xGm, {1, 64, 0, 0, 0}, {false, 0, 0, 0.0f});",
        "unaligned",
        "an operand starts 4 bytes into its buffer; DataCopyPad needs a multiple of 32",
    ),
    "a padded copy from an odd place": (
        """AscendC::Duplicate(t, 1.0f, 64); AscendC::PipeBarrier<PIPE_ALL>();
        AscendC::DataCopyPad(yGm[1], t[2], AscendC::DataCopyExtParams{1, 64, 0, 0, 0});""",
        "unaligned",
        "an operand starts 8 bytes into its buffer; DataCopyPad needs a multiple of 32",
    ),
    "blocks to an odd place": ("AscendC::DataCopy(t[1], xGm, AscendC::DataCopyParams{1, 2, 0, 0});", "unaligned", "DataCopy needs"),
    "blocks inside the buffer from an odd place": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::DataCopy(t[32], t[1], AscendC::DataCopyParams{1, 2, 0, 0});",
        "unaligned",
        "DataCopy needs",
    ),
    "memory of less than no elements": (
        "AscendC::InitGlobalMemory(yGm, uint64_t{8} - 9 * AscendC::GetBlockNum(), 0.0f);",
        "gm-range",
        "the size is 18446744073709551615 elements, which no memory has",
    ),
    "memory whose bytes are too many to count": ("AscendC::InitGlobalMemory(yGm, uint64_t{1} << 62, 0.0f);", "gm-range", "no memory has"),
    "gather from where it writes": (
        """AscendC::Duplicate(t, 1.0f, 64); AscendC::LocalTensor<int32_t> i = in.AllocTensor<int32_t>(); AscendC::Duplicate(i, 4, 8);
        AscendC::Gather(t, t, i.ReinterpretCast<uint32_t>(), 0, 8); in.FreeTensor(i);""",
        "overlap",
        "the destination and an element of the source share bytes",
    ),
    "a copy inside the buffer onto a part of itself": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::DataCopy(t[8], t, 32);",
        "overlap",
        "a source that starts -32 bytes away",
    ),
    "blocks inside the buffer onto later ones": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::DataCopy(t[8], t, AscendC::DataCopyParams{2, 1, 0, 0});",
        "overlap",
        "a block of the destination and one that is copied later share bytes",
    ),
    "selected into a shifted source": (
        """AscendC::Duplicate(t, 1.0f, 64); AscendC::LocalTensor<uint16_t> m = in.AllocTensor<uint16_t>();
        AscendC::Duplicate(m, uint16_t(5), 16);
        AscendC::Select(t[8], m, t, 2.0f, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, 32); in.FreeTensor(m);""",
        "overlap",
        "a source that starts -32 bytes away",
    ),
    "selected over the mask": (
        """AscendC::Duplicate(t, 1.0f, 64); AscendC::LocalTensor<float> u = out.AllocTensor<float>(); AscendC::Duplicate(u, 1.0f, 64);
        AscendC::Select(u, u.ReinterpretCast<uint8_t>(), t, 2.0f, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, 64, 1, {1, 1, 1, 8, 8, 8});""",
        "overlap",
        "the destination and selMask share bytes",
    ),
    "bits among what is compared": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::Compare(t[8].ReinterpretCast<uint8_t>(), t, t, AscendC::CMPMODE::LT, 64);",
        "overlap",
        "a source that starts -32 bytes away",
    ),
    "bits of repeats among what is compared": (
        "AscendC::Duplicate(t, 1.0f, 64); "
        "AscendC::Compare(t[8].ReinterpretCast<uint8_t>(), t, t, AscendC::CMPMODE::LT, 64, 1, {1, 1, 1, 8, 8, 8});",
        "overlap",
        "a source that starts -32 bytes away",
    ),
    "spread over its own source": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::Brcb(t, t, 1, {1, 8});",
        "overlap",
        "and the source share bytes",
    ),
    "a sum among its terms": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::WholeReduceSum(t[8], t, 32, 2, 1, 1, 4);",
        "overlap",
        "a source that starts -32 bytes away",
    ),
    "a maximum that a later repeat reads": (
        "AscendC::Duplicate(t, 1.0f, 64); AscendC::WholeReduceMax(t[32], t, 32, 2, 1, 1, 4, AscendC::ReduceOrder::ORDER_ONLY_VALUE);",
        "overlap",
        "a source that starts -128 bytes away",
    ),
}


def test_rules_of_copies_and_of_operands_that_overlap(make):
    """In one kernel, which is told the number of the case: a build costs more than the cases."""
    bodies = "\n".join(f"if (which == {number}) {{ {body} }}" for number, (body, _, _) in enumerate(TOGETHER.values()))
    module = make(QUEUES + bodies, "GM_ADDR x, GM_ADDR y, int32_t which")
    for number, (name, (_, rule, text)) in enumerate(TOGETHER.items()):
        with pytest.raises(ascendc.KernelError) as caught:
            module.kernel[1](*arrays(), number)
        found = caught.value.reports
        assert [report.rule for report in found if report.rule not in ("leak", "missing-sync")] == [rule], name
        assert any(text in report.what for report in found), (name, [report.what for report in found])


def test_nine_live_tensors_are_too_many(make):
    body = """AscendC::TPipe pipe; AscendC::TQue<AscendC::QuePosition::VECIN, 9> queue; pipe.InitBuffer(queue, 9, 32);
    for (int i = 0; i < 9; ++i) { queue.EnQue(queue.AllocTensor<float>()); }
    for (int i = 0; i < 9; ++i) { queue.FreeTensor(queue.DeQue<float>()); }"""
    assert [report.rule for report in reports(make(body))] == ["live-tensors"]
    body = body.replace("9>", "8>").replace(" 9,", " 8,").replace("< 9", "< 8")
    make(body).kernel[1](*arrays())


def test_products_have_different_event_ids_and_buffers(make):
    body = """AscendC::TPipe pipe; AscendC::TBuf<> buffer; pipe.InitBuffer(buffer, 200 * 1024);
    AscendC::SetFlag<AscendC::HardEvent::V_S>(5); AscendC::WaitFlag<AscendC::HardEvent::V_S>(5);"""
    assert reports(make(body))[0].rule == "ub-overflow"
    make(body, product="Ascend310P3").kernel[1](*arrays())
    assert reports(make(body, product="Ascend910A"))[0].what == "event id 5 of V_S does not exist: this product has 4 per event"


def test_a_report_says_everything(tmp_path):
    text = (EXAMPLES / "add.cpp").read_text().replace("        yQueue_.FreeTensor(y);\n", "")
    path = tmp_path / "add.cpp"
    path.write_text(text)
    module = ascendc.build(path, tiling={"share": "uint32_t", "tile": "uint32_t"})
    x = np.zeros(512, np.float32)
    with pytest.raises(ascendc.KernelError) as caught:
        module.add[2](x, x.copy(), x.copy(), {"share": 256, "tile": 256})
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "y = yQueue_.AllocTensor" in row)
    assert str(caught.value) == (
        f"1 mistake in kernel add (2 blocks):\n\n{path}:{line}: AllocTensor  [leak]\n"
        f"   {line:6d} | AscendC::LocalTensor<float> y = yQueue_.AllocTensor<float>();\n"
        "   where  all 2 cores, queue yQueue_ (VECIN, 2 x 1024 bytes, depth 2), buffer 0\n"
        "   what   the tensor allocated here was never given back: no FreeTensor before the kernel ended\n"
        "   rule   every AllocTensor is answered by one FreeTensor on the same queue\n"
        "   do     call yQueue_.FreeTensor(tensor) after the last instruction that uses the tensor\n"
    )
    report = caught.value.reports[0]
    assert (report.rule, report.file, report.line, report.cores, report.buffer, report.api) == (
        "leak",
        str(path),
        line,
        (0, 1),
        0,
        "AllocTensor",
    )


PADDED = """
    AscendC::TPipe pipe; AscendC::GlobalTensor<float> xGm; xGm.SetGlobalBuffer((__gm__ float*)x, 64);
    const AscendC::DataCopyExtParams five{1, 20, 0, 0, 0}; const AscendC::DataCopyPadExtParams<float> none{false, 0, 0, 0.0f};
    if (which == 0) {  // tiles of five floats in place, the next one read before this one is written
        AscendC::TQue<AscendC::QuePosition::VECIN, 2> in; AscendC::TQue<AscendC::QuePosition::VECOUT, 2> out;
        pipe.InitBuffer(in, 2, 64); pipe.InitBuffer(out, 2, 64);
        for (int i = -1; i < 8; ++i) {
            if (i >= 0) {
                AscendC::LocalTensor<float> a = in.DeQue<float>(), b = out.AllocTensor<float>(); AscendC::Muls(b, a, 2.0f, 5);
                out.EnQue(b); in.FreeTensor(a);
            }
            if (i < 7) {
                AscendC::LocalTensor<float> a = in.AllocTensor<float>(); AscendC::DataCopyPad(a, xGm[5 * i + 5], five, none); in.EnQue(a);
            }
            if (i >= 0) {
                AscendC::LocalTensor<float> b = out.DeQue<float>(); AscendC::DataCopyPad(xGm[5 * i], b, five); out.FreeTensor(b);
            }
        }
        return;
    }
    AscendC::TBuf<> buffer; pipe.InitBuffer(buffer, 128); AscendC::LocalTensor<float> a = buffer.Get<float>(), b = a[16];
    AscendC::Duplicate(a, 1.0f, 8); AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::DataCopyPad(xGm, a, five);
    if (which == 1) {  // what is read has been waited for, what is written later lies beside it
        AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE2>(0); AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE2>(0);
        AscendC::DataCopyPad(xGm[5], a, five);
    } else {  // the neighbours that the scalar unit writes do not hide the copy
        xGm.SetValue(6, 3.0f);
        AscendC::SetFlag<AscendC::HardEvent::S_MTE2>(0); AscendC::WaitFlag<AscendC::HardEvent::S_MTE2>(0);
    }
    AscendC::DataCopyPad(b, xGm, five, none);
"""


def test_neighbouring_bytes_of_global_memory_are_apart(make):
    kernel = make(PADDED, "GM_ADDR x, int32_t which").kernel
    x, _ = arrays()
    kernel[1](x, 0)
    assert (x[:40] == 2 * np.arange(40)).all()
    kernel[1](x, 1)
    with pytest.raises(ascendc.KernelError) as caught:
        kernel[1](x, 2)
    (report,) = caught.value.reports
    assert report.rule == "missing-sync"
    assert "reads global memory (x, byte 0) that DataCopyPad (pipe MTE3) wrote" in report.what


def test_legal_programs_give_no_report(make):
    body = (
        QUEUES
        + """
    AscendC::DataCopy(t, xGm, 64);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(0);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(0);
    AscendC::Adds(t, t, 1.0f, 64);
    AscendC::LocalTensor<float> u = out.AllocTensor<float>();
    AscendC::Muls(u, t, 2.0f, 64);
    out.EnQue(u);
    u = out.DeQue<float>();
    out.EnQue(u);
    u = out.DeQue<float>();
    AscendC::DataCopy(yGm, u, 64);
    out.FreeTensor(u);
    AscendC::SetFlag<AscendC::HardEvent::V_S>(0);
    AscendC::WaitFlag<AscendC::HardEvent::V_S>(0);
    const float first = t.GetValue(0);
    t.SetValue(1, first);
    AscendC::SetFlag<AscendC::HardEvent::S_V>(0);
    AscendC::WaitFlag<AscendC::HardEvent::S_V>(0);
    AscendC::Adds(t, t, first, 64);
    AscendC::SetFlag<AscendC::HardEvent::V_S>(0);
    AscendC::WaitFlag<AscendC::HardEvent::V_S>(0);  // what the scalar unit issues from here on begins after Adds
    AscendC::DataCopy(xGm, t, 64);
    AscendC::DataCopyPad(xGm[3], t[8], AscendC::DataCopyExtParams{1, 20, 0, 0, 0});
    AscendC::SetFlag<AscendC::HardEvent::MTE3_S>(0);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_S>(0);
    AscendC::Adds(t, t, first, 64);
    AscendC::SetFlag<AscendC::HardEvent::MTE3_MTE2>(1);
    AscendC::WaitFlag<AscendC::HardEvent::MTE3_MTE2>(1);
    AscendC::LocalTensor<float> v = in.AllocTensor<float>();
    AscendC::DataCopy(v, yGm, 64);
    in.EnQue(v);
    v = in.DeQue<float>();
    AscendC::Add(v, v, v, 64);
    in.FreeTensor(v);
    AscendC::LocalTensor<float> scratch = in.AllocTensor<float>();
    in.FreeTensor(scratch);
    """
    )
    x, y = arrays()
    before = x.copy()
    make(body).kernel[1](x, y)
    assert (y == (before + 1) * 2).all()


def test_operands_may_be_the_same_or_lie_apart(make):
    body = (
        QUEUES
        + """
    AscendC::DataCopy(t, xGm, 64);
    AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::Add(t, t, t, 8, 4, {1, 1, 1, 2, 2, 2});  // in place; odd blocks stay
    AscendC::Adds(t[8], t, 1.0f, 8, 4, {1, 1, 2, 2});  // even blocks to odd ones
    AscendC::Adds(t, t[16], 0.0f, 16, 2, {1, 1, 2, 2});  // a repeat reads what a later one writes
    AscendC::Add(t, t, t[8], 8, 3, {1, 1, 1, 0, 0, 1});  // every repeat adds to the first block
    AscendC::DataCopy(t, t, 64);
    AscendC::DataCopy(t[8], t[8], AscendC::DataCopyParams{2, 1, 1, 1});
    AscendC::Cast(t.ReinterpretCast<half>(), t, AscendC::RoundMode::CAST_NONE, 64);  // in place to narrower elements
    AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::DataCopy(yGm, t, 32);
    """
    )
    x, y = arrays()
    make(body).kernel[1](x, y)
    rows = x.reshape(8, 8).copy()
    rows[::2] *= 2
    rows[1::2] = rows[::2] + 1
    rows[:4] = rows[2:6]
    rows[0] += rows[1] + rows[2] + rows[3]
    assert (y[:32].view(np.float16) == rows.reshape(-1).astype(np.float16)).all()


def test_results_may_lie_on_their_sources_and_between_them(make):
    body = """AscendC::TPipe pipe; AscendC::TBuf<> buffer; pipe.InitBuffer(buffer, 1024);
    AscendC::LocalTensor<float> t = buffer.Get<float>();
    AscendC::GlobalTensor<float> yGm; yGm.SetGlobalBuffer((__gm__ float*)y, 64);
    AscendC::Duplicate(t, 1.0f, 256);
    AscendC::WholeReduceSum(t, t, 64, 4, 1, 1, 8);
    AscendC::Duplicate(t[64], 2.0f, 192);
    AscendC::BlockReduceSum(t[64], t[64], 3, 64, 1, 1, 8);
    AscendC::DataCopy(t[8], t[16], 8);
    AscendC::DataCopy(t[40], t[48], AscendC::DataCopyParams{2, 1, 0, 0});  // to the place of one that has been copied
    AscendC::Duplicate(t[192], 3.0f, 64);
    AscendC::Compare(t[192].ReinterpretCast<uint8_t>(), t[192], t[192], AscendC::CMPMODE::EQ, 64);
    AscendC::PipeBarrier<PIPE_ALL>(); AscendC::DataCopyPad(yGm, t, {1, 16, 0, 0}); AscendC::DataCopy(yGm[8], t[64], 24);
    AscendC::DataCopy(yGm[32], t[192], 8);"""
    x, y = arrays()
    make(body).kernel[1](x, y)
    assert y[:4].tolist() == [64] * 4
    assert y[8:32].tolist() == [16] * 24
    assert y[32:34].view(np.uint64) == np.uint64(2**64 - 1)


def test_integers_of_one_size_add_alike(make):
    body = """AscendC::TPipe pipe; AscendC::TBuf<> buffer; pipe.InitBuffer(buffer, 32);
    AscendC::GlobalTensor<uint32_t> gm; gm.SetGlobalBuffer((__gm__ uint32_t*)y, 8);
    AscendC::LocalTensor<uint32_t> t = buffer.Get<uint32_t>(); AscendC::Duplicate(t, 5u, 8); AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::SetAtomicAdd<int32_t>(); AscendC::DataCopy(gm, t, 8); AscendC::SetAtomicNone();"""
    x, y = arrays()
    make(body).kernel[1](x, y)
    assert (y[:8].view(np.uint32) == 5).all()


def test_outputs_may_lie_on_inputs_of_the_layer_norm_functions(make):
    body = (
        QUEUES
        + """
    AscendC::DataCopy(t, xGm, 64);
    AscendC::PipeBarrier<PIPE_ALL>();
    LayerNormGradBetaTiling g{16, 1, 4, 8, 8, 32, 4, 16, 1, 2, 0, 32, 0, 16, 2};
    AscendC::LayerNormGradBeta<float>(t, t[8], t, t[32], g);
    AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::DataCopy(yGm, t, 16);
    """
    )
    x, y = arrays()
    make(body).kernel[1](x, y)
    res, dy = x[:32].reshape(4, 8), x[32:].reshape(4, 8)
    assert (y[:8] == (res * dy).sum(axis=0)).all()
    assert (y[8:16] == dy.sum(axis=0)).all()


def test_cores_may_write_neighbouring_bytes_but_not_with_set_value(make):
    pad = """AscendC::TPipe pipe; AscendC::TBuf<> buffer; pipe.InitBuffer(buffer, 32); AscendC::GlobalTensor<float> gm;
    gm.SetGlobalBuffer((__gm__ float*)y, 64); AscendC::LocalTensor<float> t = buffer.Get<float>();
    AscendC::Duplicate(t, float(AscendC::GetBlockIdx()), 8);
    AscendC::PipeBarrier<PIPE_ALL>(); AscendC::DataCopyPad(gm[AscendC::GetBlockIdx()], t, {1, 4, 0, 0});"""
    x, y = arrays()
    make(pad).kernel[8](x, y)
    assert y[:8].tolist() == list(range(8))
    scalar = "AscendC::GlobalTensor<float> gm; gm.SetGlobalBuffer((__gm__ float*)y, 64); gm.SetValue(AscendC::GetBlockIdx(), 1.0f);"
    found = reports(make(scalar), blocks=2)
    assert [report.rule for report in found] == ["gm-conflict"]
    assert "SetValue on global memory writes back its whole 32-byte block" in found[0].what


def test_a_loop_without_end_becomes_a_report(make):
    found = reports(
        make("AscendC::GlobalTensor<float> gm; gm.SetGlobalBuffer((__gm__ float*)x, 64); while (gm.GetValue(1) > 0.0f) {}"), timeout=0.3
    )
    assert [report.rule for report in found] == ["time-limit"]
    busy = "const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4); while (std::chrono::steady_clock::now() < end) {}"
    found = reports(make(f"AscendC::PipeBarrier<PIPE_ALL>(); {busy}", head="#include <chrono>"), timeout=0.1)
    assert [report.rule for report in found] == ["time-limit"]
    assert "its last call" in found[0].what
    assert found[0].api == "PipeBarrier"


def test_read_only_arrays_are_not_written(make):
    x, y = arrays()
    y.flags.writeable = False
    body = QUEUES + "AscendC::Duplicate(t, 1.0f, 64); AscendC::PipeBarrier<PIPE_ALL>(); AscendC::DataCopy(yGm, t, 64);"
    with pytest.raises(ascendc.KernelError, match="DataCopy writes to y, which is read-only"):
        make(body).kernel[1](x, y)
    assert not y.any()


def test_fast_mode_computes_the_same_and_still_finds_what_no_access_shows(make):
    body = QUEUES + "AscendC::Duplicate(t, 1.0f, 64); AscendC::DataCopy(yGm, t, 64);"
    x, y = arrays()
    make(body, check=False).kernel[1](x, y)
    assert (y == 1).all()
    for mistake, rule in (
        ("in.DeQue<float>();", "deque-empty"),
        ("in.AllocTensor<float>();", "leak"),
        ("AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(0);", "set-without-wait"),
        ("AscendC::Adds(t, t, 1.0f, 65, 1, {1, 1, 8, 8});", "mask"),
        ("AscendC::SetAtomicAdd<float>();", "atomic-left-on"),
        ("AscendC::TBuf<> large; pipe.InitBuffer(large, 1 << 20);", "ub-overflow"),
    ):
        assert [report.rule for report in reports(make(QUEUES + mistake, check=False))] == [rule]


def test_padding_of_a_copy(make):
    body = """AscendC::TPipe pipe;
    AscendC::TQueBind<AscendC::QuePosition::VECIN, AscendC::QuePosition::VECOUT, 1> queue; pipe.InitBuffer(queue, 1, 256);
    AscendC::GlobalTensor<float> xGm, yGm; xGm.SetGlobalBuffer((__gm__ float*)x, 64); yGm.SetGlobalBuffer((__gm__ float*)y, 64);
    AscendC::LocalTensor<float> t = queue.AllocTensor<float>();
    AscendC::DataCopyPad(t, xGm, {2, 12, 8, 1, 0}, {true, 1, 4, 9.0f});
    queue.EnQue(t); t = queue.DeQue<float>();
    AscendC::DataCopy(yGm, t, 24);
    AscendC::DataCopyPad(yGm[32], t, {2, 20, 1, 8, 0});
    queue.FreeTensor(t);"""
    x, y = arrays()
    make(body.replace("AscendC::DataCopy(yGm, t, 24);", "AscendC::DataCopy(yGm, t, 8); AscendC::DataCopy(yGm[16], t[16], 8);")).kernel[1](
        x, y
    )
    # two blocks of three floats with one pad value before and four after each: blocks begin 64 bytes apart in the UB, 20 bytes in x
    assert y[:8].tolist() == [9, 0, 1, 2, 9, 9, 9, 9]
    assert y[16:24].tolist() == [9, 5, 6, 7, 9, 9, 9, 9]
    assert y[32:37].tolist() == [9, 0, 1, 2, 9]
    assert y[39:44].tolist() == [9, 5, 6, 7, 9]
    assert y[37:39].tolist() == [0, 0]
    assert any(report.rule == "read-unwritten" for report in reports(make(body)))


def test_every_rule_is_explained_in_the_docs():
    core = (EXAMPLES.parents[1] / "src/anycann/ascendc/core/report.cpp").read_text()
    rules = re.findall(r'^    \{"([a-z-]+)", "', core, re.MULTILINE)
    assert len(rules) > 30
    docs = (EXAMPLES.parents[1] / "docs/ascendc.md").read_text()
    assert [rule for rule in rules if f"`{rule}`" not in docs] == []


def test_one_block_stopped_by_its_own_mistake_is_the_only_report(make):
    body = QUEUES + "if (AscendC::GetBlockIdx() == 1) { in.DeQue<float>(); } AscendC::SyncAll();"
    found = reports(make(body), blocks=4)
    assert [(report.rule, report.cores) for report in found] == [("deque-empty", (1,))]


def test_a_barrier_that_some_blocks_miss_names_all_of_them(make):
    module = make("AscendC::SyncAll(); if (AscendC::GetBlockIdx() % 3 != 1) { AscendC::SyncAll(); }")
    for _ in range(20):
        (report,) = reports(module, blocks=8)
        assert (report.rule, report.cores) == ("sync-all", (0, 2, 3, 5, 6))
        assert report.what == "5 of 8 blocks wait here and cores 1, 4, 7 ended without reaching it: it would hang"


def test_an_exception_of_the_kernel_is_reported(make):
    module = make('AscendC::PipeBarrier<PIPE_ALL>(); throw std::runtime_error("no room");', head="#include <stdexcept>")
    found = reports(module)
    assert [report.rule for report in found] == ["exception"]
    assert found[0].what == "the kernel threw a C++ exception: no room; this was its last call"


def test_anything_that_a_kernel_throws_is_reported(make):
    found = reports(make("throw 5;"))
    assert [(report.rule, report.api, report.what) for report in found] == [
        ("exception", "", "the kernel threw what is no std::exception; it made no call")
    ]


def test_a_kernel_that_never_ends_and_calls_nothing_is_reported(make):
    wait = "for (;;) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }"
    module = make(wait, head="#include <chrono>\n#include <thread>")
    with pytest.raises(ascendc.KernelError) as caught:
        module.kernel[1](*arrays(), timeout=0.1)
    (report,) = caught.value.reports
    assert (report.rule, report.file, report.line, report.api) == ("time-limit", "", 0, "")
    assert report.what == "the block did not end within 0.1 seconds and calls nothing that could stop it; it made no call"
    assert report.advice == "look for a loop that does not end; a longer limit is a parameter of the launch"
    assert "before its first call  [time-limit]" in str(caught.value)


def test_rows_of_a_layer_norm_fill_whole_blocks():
    module = ascendc.build(
        EXAMPLES / "layer_norm_grad_beta.cpp",
        tiling={"layerNormGradBetaTiling": "LayerNormGradBetaTiling"},
        templates={"layer_norm_grad_beta": ["half, false, false"]},
    )
    tensors = [np.zeros(20, np.float16), np.zeros(20, np.float16), np.zeros((1, 4, 20), np.float16), np.zeros((1, 4, 20), np.float16)]
    tiling = ascendc.layer_norm_grad_beta_tiling((1, 4, 20), "float16", 320)
    with pytest.raises(ascendc.KernelError, match="H is 20 elements of 2 bytes, which is not a multiple of 32 bytes: pad H with zeros"):
        module["layer_norm_grad_beta<half, false, false>"][1](*tensors, {"layerNormGradBetaTiling": tiling})


def test_buffers_of_a_queue_take_turns(make):
    body = """AscendC::TPipe pipe; AscendC::TQue<AscendC::QuePosition::VECIN, 1> queue; pipe.InitBuffer(queue, 3, 32);
    for (int i = 0; i < 6; ++i) {
        AscendC::LocalTensor<float> t = queue.AllocTensor<float>();
        ((__gm__ float*)y)[i] = float(t.GetPhyAddr()); queue.FreeTensor(t);
    }"""
    x, y = arrays()
    make(body).kernel[1](x, y)
    assert y[:6].tolist() == [0, 32, 64, 0, 32, 64]


def test_instructions_whose_places_hash_alike_are_told_apart(make):
    """Line 100 with a name 31 bytes further on hashes as line 101 with the first name does."""
    module = make(
        QUEUES
        + """
    static const char names[] = "First\\0.........................Second";
    const auto at = [](int line) { return anycann::emu::Loc{__FILE__, line}; };
    AscendC::LocalTensor<float> u = out.AllocTensor<float>();
    { anycann::emu::Op op(names, anycann::emu::Pipe::V, at(101)); op.Write(u.view(), 256); }
    { anycann::emu::Op op(names + 31, anycann::emu::Pipe::V, at(100)); op.Write(t.view(), 256); }
    t.GetValue(0);
    out.FreeTensor(u);"""
    )
    (report,) = reports(module)
    assert report.rule == "missing-sync"
    assert "the buffer that Second (pipe V) wrote" in report.what


def test_queues_that_are_initialised_on_one_line_have_their_names(make):
    module = make("""
    AscendC::TPipe pipe; AscendC::TQue<AscendC::TPosition::VECIN, 1> a[2], b;
    pipe.InitBuffer(b, 1, 64); for (int i = 0; i < 2; ++i) { pipe.InitBuffer(a[i], 1, 32); }
    AscendC::LocalTensor<float> t = a[1].AllocTensor<float>(), u = b.AllocTensor<float>();
    b.EnQue(u); u = b.DeQue<float>(); b.FreeTensor(u); a[0].FreeTensor(t);""")
    (report,) = reports(module)
    assert report.rule == "wrong-queue"
    assert report.queue == "queue a[i] (VECIN, 1 x 32 bytes, depth 1)"
    module = make("""
    AscendC::TPipe pipe; AscendC::TQue<AscendC::TPosition::VECIN, 1> a, b; AscendC::TBuf<> c;
    pipe.InitBuffer(a, 1, 64); pipe.InitBuffer(b, 1, 32); pipe.InitBuffer(c, 32);
    AscendC::LocalTensor<float> t = b.AllocTensor<float>(); b.EnQue(t); t = b.DeQue<float>(); b.FreeTensor(t);""")
    summary = module.kernel[2](*arrays())
    assert summary.queues == {"queue a (VECIN, 1 x 64 bytes, depth 1)": 0, "queue b (VECIN, 1 x 32 bytes, depth 1)": 1}
