// Compares softmax attention over a cache with its equation, computed in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/batch.h"

namespace runnel {
namespace {

constexpr double kTheta = 10000.0;

struct Shape {
  int heads, kv_heads, dk, dv, rotated;
  DType stored = DType::kF32;
  int64_t positions = 192;
};

// Sizes close to those of vectors and pages, and groups of one head and of several heads.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{1, 1, 1, 1, 0},
                                         {2, 2, 5, 7, 4},
                                         {4, 2, 16, 24, 16},
                                         {6, 1, 33, 65, 6},
                                         {4, 4, 64, 64, 64, DType::kBF16},
                                         {3, 1, 20, 130, 20, DType::kBF16},
                                         {4, 2, 64, 64, 64, DType::kBF16},
                                         {6, 2, 24, 40, 8}};
  return all;
}

std::vector<float> angles_of(int64_t positions, int dims) {
  std::vector<float> angles;
  for (int64_t t = 0; t < positions; ++t) {
    const auto angle = [&](int i) {
      return static_cast<double>(t) * std::pow(kTheta, -2.0 * i / dims);
    };
    for (int i = 0; i < dims / 2; ++i) angles.push_back(static_cast<float>(std::cos(angle(i))));
    for (int i = 0; i < dims / 2; ++i) angles.push_back(static_cast<float>(std::sin(angle(i))));
  }
  return angles;
}

// The inputs of one sequence, and the outputs that attention must give.
struct Sequence {
  Sequence(const Shape& shape, int count, uint32_t seed)
      : shape(shape),
        q(count, shape.heads * shape.dk, 3),
        k(count, shape.kv_heads * shape.dk, 1),
        v(count, shape.kv_heads * shape.dv, 2) {
    for (Guarded* of : {&q, &k, &v}) {
      of->fill(random_floats(int64_t{of->rows()} * of->cols(), seed++));
    }
  }

  // Numbers [first, first + size) of a row, rotated by its position.
  std::vector<double> rotated(Guarded& from, int row, int first) const {
    std::vector<double> x(shape.dk);
    for (int i = 0; i < shape.dk; ++i) x[i] = from.at(row, first + i);
    const int half = shape.rotated / 2;
    for (int i = 0; i < half; ++i) {
      const double angle = row * std::pow(kTheta, -2.0 * i / shape.rotated);
      const double low = x[i];
      const double high = x[i + half];
      x[i] = low * std::cos(angle) - high * std::sin(angle);
      x[i + half] = high * std::cos(angle) + low * std::sin(angle);
    }
    return x;
  }
  double stored(double x) const {
    return shape.stored == DType::kF32 ? x : rounded_to_bf16(static_cast<float>(x));
  }
  // The output of input `row` and head `head`.
  std::vector<double> expected(int row, int head, double scale) {
    const int kv_head = head / (shape.heads / shape.kv_heads);
    const std::vector<double> query = rotated(q, row, head * shape.dk);
    std::vector<double> scores;
    for (int j = 0; j <= row; ++j) {
      const std::vector<double> key = rotated(k, j, kv_head * shape.dk);
      double sum = 0;
      for (int i = 0; i < shape.dk; ++i) sum += scale * query[i] * stored(key[i]);
      scores.push_back(sum);
    }
    const double most = *std::ranges::max_element(scores);
    std::vector<double> out(shape.dv);
    double total = 0;
    for (int j = 0; j <= row; ++j) {
      const double p = std::exp(scores[j] - most);
      total += p;
      for (int i = 0; i < shape.dv; ++i) out[i] += p * stored(v.at(j, kv_head * shape.dv + i));
    }
    for (double& x : out) x /= total;
    return out;
  }

  Shape shape;
  Guarded q, k, v;
};

// Slots whose caches hold NaN until they are written, at pages that other layers share.
class Caches {
 public:
  Caches(const Shape& shape, int slots)
      : shape_(shape),
        angles_(static_cast<int>(shape.positions), std::max(shape.rotated, 1)),
        memory_(slots * slot_floats(), std::numeric_limits<float>::quiet_NaN()) {
    if (shape.rotated > 0) angles_.fill(angles_of(shape.positions, shape.rotated));
  }

  Attention attention() {
    return {.heads = shape_.heads,
            .kv_heads = shape_.kv_heads,
            .dk = shape_.dk,
            .dv = shape_.dv,
            .scale = 0.25F,
            .stored = shape_.stored,
            .angles = shape_.rotated > 0 ? angles_.view() : View{}};
  }
  Cache cache() {
    return {{reinterpret_cast<std::byte*>(memory_.data()), slot_floats() * 4, kBefore * 4},
            page_bytes(),
            shape_.positions};
  }
  // Whether nothing has been written to the slot.
  bool is_empty(int slot) const {
    const auto first = memory_.begin() + slot * slot_floats();
    return std::all_of(first, first + slot_floats(), [](float x) { return std::isnan(x); });
  }

 private:
  static constexpr int64_t kBefore = 24, kBetween = 40;  // floats of other layers
  int64_t page_bytes() const {
    const int64_t numbers = int64_t{shape_.kv_heads} * (shape_.dk + shape_.dv) * kPagePositions;
    return numbers * element_bytes(shape_.stored) + kBetween * 4;
  }
  int64_t slot_floats() const {
    const int64_t pages = (shape_.positions + kPagePositions - 1) / kPagePositions;
    return kBefore + pages * page_bytes() / 4;
  }

  Shape shape_;
  Guarded angles_;
  std::vector<float> memory_;
};

// The number of inputs that each sequence takes in one call.
using Cut = std::vector<int>;

// Feeds the sequences, sequence i in slot i, in calls of these lengths; returns their outputs.
std::vector<std::vector<float>> attend_all(Backend& backend, std::vector<Sequence>& sequences,
                                           const std::vector<Cut>& calls) {
  const Shape shape = sequences[0].shape;
  const auto count = static_cast<int>(sequences.size());
  Caches caches(shape, count);
  std::vector<int32_t> slots(count);
  for (int i = 0; i < count; ++i) slots[i] = i;
  std::vector<std::vector<float>> outputs(count);
  std::vector<int> done(count);
  for (const Cut& lengths : calls) {
    Batch batch(slots, lengths);
    Guarded q(batch.inputs(), shape.heads * shape.dk, 5);
    Guarded k(batch.inputs(), shape.kv_heads * shape.dk);
    Guarded v(batch.inputs(), shape.kv_heads * shape.dv, 1);
    Guarded out(batch.inputs(), shape.heads * shape.dv, 2);
    for (int i = 0; i < count; ++i) {
      batch.controls[i].position = done[i];
      for (int input = 0; input < lengths[i]; ++input) {
        const auto take = [&](Guarded& from, Guarded& to) {
          std::copy_n(from.row(done[i] + input), from.cols(), to.row(batch.first[i] + input));
        };
        take(sequences[i].q, q);
        take(sequences[i].k, k);
        take(sequences[i].v, v);
      }
      done[i] += lengths[i];
    }
    backend.attend(batch.rows(), batch.control(), caches.attention(),
                   {q.view(), k.view(), v.view()}, caches.cache(), out.view());
    out.expect_guards("out");
    for (int i = 0; i < count; ++i) {
      for (int input = batch.first[i]; input < batch.first[i + 1]; ++input) {
        outputs[i].insert(outputs[i].end(), out.row(input), out.row(input) + out.cols());
      }
    }
  }
  return outputs;
}

class AttendTest : public KernelTest {};

TEST_P(AttendTest, MatchesItsEquation) {
  for (const Shape& shape : shapes()) {
    constexpr int kCount = 131;  // two pages and part of a third
    std::vector<Sequence> one = {Sequence(shape, kCount, 7)};
    const std::vector<float> found = attend_all(backend(), one, {{100}, {31}})[0];
    for (const int row : {0, 1, 62, 63, 64, 99, 100, 127, 128, 130}) {
      for (int head = 0; head < shape.heads; ++head) {
        const std::vector<double> expected = one[0].expected(row, head, 0.25);
        for (int i = 0; i < shape.dv; ++i) {
          const int64_t at = (int64_t{row} * shape.heads + head) * shape.dv + i;
          // A key halfway between two bf16 numbers may be rounded up or down.
          const double tolerance = shape.stored == DType::kF32 ? 5e-6 : 5e-3;
          ASSERT_NEAR(found[at], expected[i], tolerance)
              << "dk " << shape.dk << " row " << row << " head " << head << " column " << i;
        }
      }
    }
  }
}

TEST_P(AttendTest, BitsDependOnNeitherCutsNorBatchNorThreads) {
  const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
  for (const Shape& shape : shapes()) {
    constexpr int kCount = 70;
    std::vector<Sequence> all;
    for (uint32_t i = 0; i < 3; ++i) all.emplace_back(shape, kCount, 20 + i);
    const auto together = attend_all(backend(), all, {{1, 0, 64}, {68, 3, 1}, {1, 67, 5}});
    for (int i = 0; i < 3; ++i) {
      std::vector<Sequence> one = {all[i]};
      const std::vector<float> steps = attend_all(*single, one, std::vector<Cut>(kCount, {1}))[0];
      EXPECT_TRUE(same_bits(together[i], steps)) << "dk " << shape.dk << " sequence " << i;
    }
  }
}

TEST_P(AttendTest, JoinsSegments) {
  const Shape shape = {2, 1, 8, 8, 8, DType::kF32, 1100};
  std::vector<Sequence> one = {Sequence(shape, 1100, 3)};
  const std::vector<float> found = attend_all(backend(), one, {{500}, {600}})[0];
  const std::vector<float> other = attend_all(backend(), one, {{1023}, {1}, {76}})[0];
  EXPECT_TRUE(same_bits(found, other));
  for (const int row : {510, 511, 512, 1023, 1024, 1099}) {
    const std::vector<double> expected = one[0].expected(row, 1, 0.25);
    for (int i = 0; i < 8; ++i) {
      ASSERT_NEAR(found[(int64_t{row} * 2 + 1) * 8 + i], expected[i], 1e-5) << "row " << row;
    }
  }
}

// With this many heads, a block of a GPU joins all segments of its tile itself.
TEST_P(AttendTest, JoinsSegmentsOfManyHeads) {
  const Shape shape = {16, 16, 2, 3, 2, DType::kBF16, 1100};
  std::vector<Sequence> one = {Sequence(shape, 600, 4)};
  const std::vector<float> whole = attend_all(backend(), one, {{600}})[0];
  const std::vector<float> parts = attend_all(backend(), one, {{511}, {1}, {1}, {87}})[0];
  EXPECT_TRUE(same_bits(whole, parts));
  for (const int row : {511, 512, 599}) {
    const std::vector<double> expected = one[0].expected(row, 15, 0.25);
    for (int i = 0; i < 3; ++i) {
      ASSERT_NEAR(whole[(int64_t{row} * 16 + 15) * 3 + i], expected[i], 5e-3) << "row " << row;
    }
  }
}

// Prompts and single values, at positions close to the ends of pages and segments.
TEST_P(AttendTest, HasTheSameBitsInBatchesOfPromptsAndSteps) {
  const Shape shape = {6, 2, 7, 9, 4, DType::kF32, 640};
  std::vector<Sequence> all;
  for (uint32_t i = 0; i < 4; ++i) all.emplace_back(shape, 530, 40 + i);
  const std::vector<Cut> calls = {
      {511, 63, 1, 0}, {1, 1, 62, 1}, {1, 449, 1, 528}, {17, 17, 466, 1}};
  const auto together = attend_all(backend(), all, calls);
  for (int i = 0; i < 4; ++i) {
    std::vector<Sequence> one = {all[i]};
    EXPECT_TRUE(same_bits(together[i], attend_all(backend(), one, {{530}})[0])) << i;
  }
}

// A query ignores later inputs of its own prompt completely: it does not even multiply them by 0.
TEST_P(AttendTest, LaterInputsChangeNothing) {
  const Shape shape = {4, 2, 8, 10, 0};
  constexpr int kCount = 80;
  Sequence sequence(shape, kCount, 9);
  std::vector<Sequence> before = {sequence};
  std::vector<Sequence> after = {sequence};
  for (const int row : {69, 79}) {
    for (int i = 0; i < 20; ++i) after[0].v.at(row, i) = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < 16; ++i) after[0].k.at(row, i) = std::numeric_limits<float>::infinity();
  }
  const auto first = [&](std::vector<Sequence>& of) {
    std::vector<float> found = attend_all(backend(), of, {{kCount}})[0];
    found.resize(size_t{69} * 40);
    return found;
  };
  EXPECT_TRUE(same_bits(first(before), first(after)));
}

std::vector<float> row_of(Guarded& matrix, int row) {
  return {matrix.row(row), matrix.row(row) + matrix.cols()};
}

TEST_P(AttendTest, LeavesFrozenRowsAlone) {
  const Shape shape = {2, 1, 16, 16, 8};
  Sequence sequence(shape, 3, 5);
  Caches caches(shape, 2);
  Batch batch({-1, 1}, {1, 2});
  Guarded out(3, 32);
  backend().attend(batch.rows(), batch.control(), caches.attention(),
                   {sequence.q.view(), sequence.k.view(), sequence.v.view()}, caches.cache(),
                   out.view());
  for (const float y : row_of(out, 0)) EXPECT_TRUE(std::isnan(y));
  for (const float y : row_of(out, 1)) EXPECT_FALSE(std::isnan(y));
  EXPECT_TRUE(caches.is_empty(0)) << "no row has this slot";
  EXPECT_FALSE(caches.is_empty(1));
  out.expect_guards("out");
}

INSTANTIATE_TEST_SUITE_P(, AttendTest, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
