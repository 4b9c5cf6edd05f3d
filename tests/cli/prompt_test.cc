#include "cli/prompt.h"

#include <gmock/gmock.h>

#include "cli/png_file.h"
#include "cli/score_input.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr ImageShape kShape{.height = 4, .width = 3, .channels = 1};

class PromptTest : public testing::Test {
 protected:
  PromptTest() {
    image_.name = "small";
    image_.vocabulary = 256;
    image_.max_length = kShape.bytes();
    image_.image = kShape;
    symbols_.name = "text";
    symbols_.vocabulary = 10;
    folder_.write("five.idx", idx_bytes({5, 4, 3}, content_));
    folder_.write("one.png", *encode_png({kShape, item(0)}));
  }
  std::vector<uint8_t> item(int index) const {
    return {content_.begin() + index * 12, content_.begin() + (index + 1) * 12};
  }
  std::string load_error(const std::string& name) const {
    const auto image = load_image(folder_.path(name), kShape);
    return image.ok() ? "" : image.status().message();
  }
  std::string score_error(const std::string& name, const ModelView& model) const {
    const auto sequences = load_sequences(folder_.path(name), model, INT64_MAX);
    return sequences.ok() ? "" : sequences.status().message();
  }

  const std::vector<uint8_t> content_ = random_bytes(60, 9);
  TestFolder folder_;
  ModelView image_, symbols_;
};

TEST_F(PromptTest, FindsImagesInFiles) {
  EXPECT_EQ(*load_image(folder_.path("one.png"), kShape), item(0));
  EXPECT_EQ(*load_image(folder_.path("five.idx#3"), kShape), item(3));
  EXPECT_EQ(*load_image(folder_.path("five.idx"), kShape), item(0));
  folder_.write("odd#7", idx_bytes({5, 4, 3}, content_));
  EXPECT_EQ(*load_image(folder_.path("odd#7"), kShape), item(0)) << "the file is called so";
  EXPECT_EQ(*load_image(folder_.path("odd#7#2"), kShape), item(2));
}

TEST_F(PromptTest, ReadsColourFromFourDimensions) {
  const auto content = random_bytes(2 * 4 * 3 * 3, 2);
  const ImageShape colour{.height = 4, .width = 3, .channels = 3};
  folder_.write("rgb", idx_bytes({2, 4, 3, 3}, content));
  EXPECT_EQ(*load_image(folder_.path("rgb#1"), colour),
            std::vector(content.begin() + 36, content.end()));
  EXPECT_THAT(load_image(folder_.path("five.idx"), colour).status().message(),
              HasSubstr("has items of shape [4, 3]; the model takes images of [4, 3, 3]"));
}

TEST_F(PromptTest, NamesTheFaultOfAnImage) {
  EXPECT_THAT(load_error("five.idx#5"), HasSubstr("has items 0 to 4; there is no item 5"));
  EXPECT_THAT(load_error("five.idx#x"), HasSubstr("expected the number of an item after '#'"));
  EXPECT_THAT(load_error("five.idx#"), HasSubstr("expected the number of an item"));
  EXPECT_THAT(load_error("five.idx#-1"), HasSubstr("expected the number of an item"));
  EXPECT_THAT(load_error("five.idx#99999999999999999999"), HasSubstr("expected the number"));
  EXPECT_THAT(load_error("one.png#1"), HasSubstr("holds one image"));
  EXPECT_THAT(load_error("none.png"), HasSubstr("cannot be opened"));
  folder_.write("text", "1 2 3");
  EXPECT_THAT(load_error("text"), HasSubstr("neither a PNG nor an idx file"));
  folder_.write("large.png",
                *encode_png({{.height = 28, .width = 28, .channels = 1}, random_bytes(784, 1)}));
  EXPECT_THAT(load_error("large.png"),
              HasSubstr("28 x 28 pixels (height x width); the model takes 4 x 3"));
}

TEST_F(PromptTest, GivesTheFirstRows) {
  const auto prompt = image_prompt(folder_.path("five.idx#1"), kShape, 2);
  ASSERT_TRUE(prompt.ok());
  const auto expected = item(1);
  EXPECT_EQ(*prompt, std::vector<int32_t>(expected.begin(), expected.begin() + 6));
  for (const int64_t rows : {-1, 0, 4, 5}) {
    EXPECT_THAT(image_prompt(folder_.path("one.png"), kShape, rows).status().message(),
                HasSubstr("have 4 rows, of which 1 to 3 can be given"));
  }
}

TEST_F(PromptTest, LoadsSequencesOfEveryKind) {
  const auto all = load_sequences(folder_.path("five.idx"), image_, INT64_MAX);
  ASSERT_TRUE(all.ok());
  ASSERT_THAT(*all, SizeIs(5));
  const auto last = item(4);
  EXPECT_EQ((*all)[4], std::vector<int32_t>(last.begin(), last.end()));
  EXPECT_THAT(*load_sequences(folder_.path("five.idx"), image_, 2), SizeIs(2));
  EXPECT_EQ((*load_sequences(folder_.path("five.idx#4"), image_, 9))[0], (*all)[4]);
  EXPECT_EQ((*load_sequences(folder_.path("one.png"), image_, 9))[0], (*all)[0]);
  folder_.write("values", "1 2 3\n4,5\n");
  EXPECT_THAT(*load_sequences(folder_.path("values"), symbols_, 9),
              ElementsAre(ElementsAre(1, 2, 3), ElementsAre(4, 5)));
  EXPECT_THAT(*load_sequences(folder_.path("values"), image_, 1),
              ElementsAre(ElementsAre(1, 2, 3)));
}

TEST_F(PromptTest, NamesTheFaultOfAFileToScore) {
  EXPECT_THAT(score_error("five.idx", symbols_), HasSubstr("model 'text' takes symbols"));
  EXPECT_THAT(score_error("one.png", symbols_), HasSubstr("model 'text' takes symbols"));
  folder_.write("short", "1 2\n3\n");
  EXPECT_THAT(score_error("short", symbols_), HasSubstr("short', sequence 1 has one value"));
  folder_.write("short#1", "1\n");
  EXPECT_THAT(score_error("short#1", symbols_), HasSubstr("short#1', sequence 0 has one value"));
  folder_.write("large", "1 2\n3 10\n");
  EXPECT_THAT(score_error("large", symbols_), HasSubstr("line 2: value 1 is '10'"));
  folder_.write("empty", "\n\n");
  EXPECT_THAT(score_error("empty", symbols_), HasSubstr("holds no value"));
  EXPECT_THAT(score_error("empty#2", symbols_), HasSubstr("leave out '#2'"));
  folder_.write("long", "1 2 3 4 5 6 7 8 9 10 11 12 13");
  EXPECT_THAT(score_error("long", image_),
              HasSubstr("has 13 values; sequences of model 'small' have at most 12"));
  folder_.write("cut.idx", idx_bytes({5, 4, 3}, random_bytes(30, 1)));
  EXPECT_THAT(score_error("cut.idx", image_), HasSubstr("item 2 of 5"));
  EXPECT_TRUE(load_sequences(folder_.path("cut.idx"), image_, 2).ok());
}

}  // namespace
}  // namespace runnel
