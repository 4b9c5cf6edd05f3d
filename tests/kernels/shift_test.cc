// Compares shift() and convolve(), which read earlier inputs of a row, with plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/kernels/batch.h"

namespace runnel {
namespace {

using Numbers = std::vector<double>;

constexpr int kWidths[] = {1, 3, 16, 17, 33, 64, 100, 256, 257, 300};

double silu_of(double x) { return x / (1 + std::exp(-x)); }

class Before : public KernelTest {
 protected:
  void expect_shift(Batch batch, int slots, int width, int mixes, bool in_place = false) {
    Guarded x(batch.inputs(), width, 2);
    Guarded mu(mixes, width, 1);
    Guarded out(batch.inputs(), mixes * width, 3);
    const std::vector<float> given = random_floats(int64_t{batch.inputs()} * width, 1);
    x.fill(given);
    mu.fill(random_floats(int64_t{mixes} * width, 2));
    SlotStates states(slots, width);
    Guarded& to = in_place ? x : out;
    backend().shift(batch.rows(), x.view(), mu.view(), states.states(), to.view());
    to.expect_guards("shift");
    states.expect_rest_untouched(batch);
    for (size_t row = 0; row < batch.slot.size(); ++row) {
      if (batch.slot[row] < 0) continue;
      Numbers before = states.initial(batch.slot[row]);
      for (int input = batch.first[row]; input < batch.first[row + 1]; ++input) {
        for (int c = 0; c < width; ++c) {
          const double now = given[int64_t{input} * width + c];
          for (int mix = 0; mix < mixes; ++mix) {
            const double y = now + (before[c] - now) * mu.at(mix, c);
            ASSERT_NEAR(to.at(input, mix * width + c), y, 1e-6 * (1 + std::abs(y)));
          }
          before[c] = now;
        }
      }
      states.expect_near(batch.slot[row], before, 0.0);
    }
  }

  struct Filter {
    int taps;
    bool biased = true;
    Activation activation = Activation::kSilu;
  };

  void expect_convolution(Batch batch, int slots, int channels, Filter filter,
                          bool in_place = false) {
    Guarded x(batch.inputs(), channels, 2);
    Guarded weight(filter.taps, channels, 1);
    Guarded bias(1, channels);
    Guarded out(batch.inputs(), channels, 3);
    const std::vector<float> given = random_floats(int64_t{batch.inputs()} * channels, 1);
    x.fill(given);
    weight.fill(random_floats(int64_t{filter.taps} * channels, 2));
    bias.fill(random_floats(channels, 3));
    SlotStates states(slots, (filter.taps - 1) * channels);
    const Convolution convolution = {weight.view(), filter.biased ? bias.view() : View{},
                                     filter.activation};
    ASSERT_EQ(convolution.state_bytes(), states.size * 4);
    Guarded& to = in_place ? x : out;
    backend().convolve(batch.rows(), x.view(), convolution, states.states(), to.view());
    to.expect_guards("convolve");
    states.expect_rest_untouched(batch);
    for (size_t row = 0; row < batch.slot.size(); ++row) {
      if (batch.slot[row] < 0) continue;
      Numbers held = states.initial(batch.slot[row]);
      for (int input = batch.first[row]; input < batch.first[row + 1]; ++input) {
        held.insert(held.end(), given.begin() + int64_t{input} * channels,
                    given.begin() + int64_t{input + 1} * channels);
        for (int c = 0; c < channels; ++c) {
          double sum = filter.biased ? bias.at(0, c) : 0.0;
          for (int tap = 0; tap < filter.taps; ++tap) {
            sum += weight.at(tap, c) * held[int64_t{tap} * channels + c];
          }
          const double y = filter.activation == Activation::kSilu ? silu_of(sum) : sum;
          ASSERT_NEAR(to.at(input, c), y, 2e-6 * (1 + std::abs(y)))
              << filter.taps << " taps, " << channels << " channels";
        }
        held.erase(held.begin(), held.begin() + channels);
      }
      states.expect_near(batch.slot[row], held, 0.0);
    }
  }
};

TEST_P(Before, ShiftMixesEachInputWithTheOneBefore) {
  for (const int width : kWidths) {
    for (const int mixes : {1, 2, 6}) {
      expect_shift(Batch({2, -1, 0, 1}, {1, 2, 5, 0}), 4, width, mixes);
    }
    expect_shift(Batch({2, 0, 1}, {1, 5, 1}), 3, width, 1, true);
  }
}

TEST_P(Before, ConvolutionMatchesItsSums) {
  for (const int channels : kWidths) {
    for (const int taps : {1, 2, 3, 4, 8}) {
      expect_convolution(Batch({2, -1, 0, 1}, {1, 2, 5, 0}), 4, channels,
                         {taps, taps % 2 == 0, taps == 3 ? Activation::kNone : Activation::kSilu});
      expect_convolution(Batch({2, 0, 1}, {1, 5, 1}), 3, channels, {taps}, true);
    }
  }
}

TEST_P(Before, ManyRows) {
  std::vector<int32_t> slots(50);
  std::iota(slots.rbegin(), slots.rend(), 0);
  std::vector<int> lengths(50, 1);
  lengths[7] = 12;
  expect_shift(Batch(slots, lengths), 50, 700, 3);
  expect_convolution(Batch(slots, lengths), 50, 700, {4});
}

// A prompt in one call gives the same bits as stepping through it, in any batch and with any number
// of threads.
TEST_P(Before, BitsDependOnlyOnTheRow) {
  const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
  const int length = 9;
  const int width = 301;
  Guarded x(2 * length, width);
  Guarded weight(4, width);
  x.fill(random_floats(2 * length * width, 1));
  weight.fill(random_floats(4 * width, 2));
  const Convolution convolution = {weight.view(), View{}};
  const View mu = weight.view().top(2);
  SlotStates shifted(2, width), shifted_alone(2, width);
  SlotStates convolved(2, 3 * width), convolved_alone(2, 3 * width);
  Guarded mixed(2 * length, 2 * width), mixed_alone(2 * length, 2 * width);
  Guarded out(2 * length, width), out_alone(2 * length, width);
  Batch both({1, 0}, {length, length});
  backend().shift(both.rows(), x.view(), mu, shifted.states(), mixed.view());
  backend().convolve(both.rows(), x.view(), convolution, convolved.states(), out.view());
  for (int input = 0; input < 2 * length; ++input) {
    Batch one({input < length ? 1 : 0}, {1});
    const auto at = [&](Guarded& of) { return of.view().slice(input, 1); };
    single->shift(one.rows(), at(x), mu, shifted_alone.states(), at(mixed_alone));
    single->convolve(one.rows(), at(x), convolution, convolved_alone.states(), at(out_alone));
  }
  EXPECT_TRUE(same_bits(mixed.values(), mixed_alone.values()));
  EXPECT_TRUE(same_bits(out.values(), out_alone.values()));
  EXPECT_TRUE(same_bits(shifted.memory.values(), shifted_alone.memory.values()));
  EXPECT_TRUE(same_bits(convolved.memory.values(), convolved_alone.memory.values()));
}

// Convolutions in one call have the bits of separate calls. There are more than share a launch.
TEST_P(Before, SeveralConvolutionsHaveTheBitsOfSeparateCalls) {
  struct One {
    Guarded x, weight, bias, out;
    SlotStates states;
    Convolution convolution = {};
    One(int inputs, int channels, int taps, uint32_t seed)
        : x(inputs, channels, 1),
          weight(taps, channels, 2),
          bias(1, channels),
          out(inputs, channels, 3),
          states(3, (taps - 1) * channels) {
      x.fill(random_floats(int64_t{inputs} * channels, seed));
      weight.fill(random_floats(int64_t{taps} * channels, seed + 1));
      bias.fill(random_floats(channels, seed + 2));
    }
  };
  Batch batch({2, -1, 0}, {1, 2, 5});
  std::vector<std::unique_ptr<One>> each, together;
  std::vector<Convolved> all;
  for (int i = 0; i < 11; ++i) {
    for (auto* to : {&each, &together}) {
      to->push_back(std::make_unique<One>(batch.inputs(), kWidths[i % std::size(kWidths)],
                                          2 + i % 4, static_cast<uint32_t>(i)));
      One& one = *to->back();
      one.convolution = {one.weight.view(), i % 2 == 0 ? one.bias.view() : View{},
                         i % 3 == 0 ? Activation::kNone : Activation::kSilu};
    }
    One& one = *together.back();
    const bool in_place = i % 2 == 1;
    all.push_back({one.x.view(), &one.convolution, one.states.states(),
                   in_place ? one.x.view() : one.out.view()});
    One& alone = *each.back();
    backend().convolve(batch.rows(), alone.x.view(), alone.convolution, alone.states.states(),
                       in_place ? alone.x.view() : alone.out.view());
  }
  backend().convolves(batch.rows(), all);
  for (size_t i = 0; i < all.size(); ++i) {
    together[i]->out.expect_guards("convolves");
    together[i]->x.expect_guards("convolves");
    EXPECT_TRUE(same_bits(together[i]->x.values(), each[i]->x.values())) << i;
    EXPECT_TRUE(same_bits(together[i]->out.values(), each[i]->out.values())) << i;
    EXPECT_TRUE(same_bits(together[i]->states.memory.values(), each[i]->states.memory.values()));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Before, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
