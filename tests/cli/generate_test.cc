#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/fields.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/field_flags.h"
#include "cli/image_sheet.h"
#include "cli/png_file.h"
#include "server/grpc/wire.h"
#include "tests/base/eventually.h"
#include "tests/base/test_files.h"
#include "tests/cli/fake_server.h"

namespace runnel {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr ImageShape kShape{.height = 4, .width = 3, .channels = 1};

class GenerateTest : public testing::Test {
 protected:
  GenerateTest() {
    options_.server.address = server_.address();
    options_.model = "small";
    options_.out = folder_.path("sheet.png");
  }
  int run() { return run_generate(options_, captured_.console()); }
  void use_symbols() {
    options_.model = "text";
    options_.out.clear();
  }
  // Compares the written sheet with a sheet of these images.
  void expect_sheet(const std::vector<std::vector<uint8_t>>& images) {
    const auto layout = layout_sheet(static_cast<int>(images.size()), kShape);
    const Picture expected = draw_sheet(*layout, kShape, images);
    const auto bytes = read_file(options_.out, 1 << 20);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    const auto found = decode_png(as_bytes(*bytes), expected.shape, "the sheet");
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(found->bytes, expected.bytes);
  }
  static std::vector<uint8_t> drawn(int sample) {
    std::vector<uint8_t> image;
    for (int i = 0; i < 12; ++i) image.push_back(static_cast<uint8_t>(fake_value(sample, i, 256)));
    return image;
  }

  CapturedConsole captured_;
  FakeServer server_{
      {fake_image_model("small"), fake_symbol_model("text"), fake_text_model("prose")}};
  TestFolder folder_;
  GenerateOptions options_;
};

TEST_F(GenerateTest, DrawsASheetInOneCall) {
  options_.count = 5;
  options_.sampling.seed = 7;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  expect_sheet({drawn(0), drawn(1), drawn(2), drawn(3), drawn(4)});
  EXPECT_THAT(captured_.out(), AllOf(StartsWith(options_.out + ": 5 images of 4 x 3, seed 7, in "),
                                     HasSubstr("in 2.00 s, first value after 500.0 ms, "
                                               "33 sampled values/s, 2.5 images/s"),
                                     HasSubstr("1.000 bits per dimension")));
  EXPECT_EQ(captured_.err(), "");
  EXPECT_EQ(server_.last_request().samples(), 5);
  EXPECT_EQ(server_.last_request().sampling().seed(), 7);
  EXPECT_FALSE(server_.last_request().has_max_values());
}

TEST_F(GenerateTest, LeavesDefaultsToTheServer) {
  ASSERT_EQ(run(), kExitOk);
  const v1::GenerateRequest request = server_.last_request();
  EXPECT_FALSE(request.sampling().has_seed() || request.sampling().has_temperature() ||
               request.sampling().has_top_k() || request.sampling().has_greedy());
  EXPECT_FALSE(request.has_keep() || request.has_origin() || request.has_top_log_probs());
}

TEST_F(GenerateTest, CompletesAPicture) {
  const auto given = random_bytes(12, 4);
  options_.prompt_image = folder_.write("given.png", *encode_png({kShape, given}));
  options_.rows = 2;
  options_.count = 2;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  std::vector<std::vector<uint8_t>> images = {drawn(0), drawn(1)};
  for (auto& image : images) std::copy_n(given.begin(), 6, image.begin());
  expect_sheet(images);
  EXPECT_EQ(server_.last_request().values().values_size(), 6);
  EXPECT_THAT(captured_.out(), HasSubstr("12 prompt values/s, 7 sampled values/s"));
}

TEST_F(GenerateTest, SaysWhyATextEndedUnlessItReachedItsLength) {
  use_symbols();
  options_.max_values = 3;
  for (const auto& [reason, text] : std::vector<std::pair<v1::Finished::Reason, std::string>>{
           {v1::Finished::STOP, ", ended by --stop\n"},
           {v1::Finished::EOS, ", ended by the model\n"},
           {v1::Finished::END, ", ended at the model's last position\n"},
           {v1::Finished::LENGTH, "bits per value\n"}}) {
    server_.reason = reason;
    ASSERT_EQ(run(), kExitOk) << captured_.err();
    EXPECT_THAT(captured_.err(), testing::EndsWith(text));
  }
}

TEST_F(GenerateTest, ATerminalShowsThatAPromptIsRead) {
  use_symbols();
  options_.values = "1,2,3";
  WatchedText text;
  std::ostream err(&text);
  std::ostringstream out;
  Console console{.out = out, .err = err, .err_terminal = true, .columns = [] { return 80; }};
  server_.generate_instead = [&](auto*, auto* writer) {
    v1::GenerateResponse event;
    event.mutable_started()->set_seed(1);
    writer->Write(event);
    EXPECT_TRUE(text.comes_to_have("reading a prompt of 3 values, "));
    event.mutable_finished()->set_reason(v1::Finished::LENGTH);
    writer->Write(event);
    return grpc::Status::OK;
  };
  ASSERT_EQ(run_generate(options_, console), kExitOk) << text.str();
}

TEST_F(GenerateTest, ASingleValueHasNoRate) {
  use_symbols();
  options_.max_values = 1;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_THAT(captured_.err(), testing::Not(HasSubstr("values/s")));
}

TEST_F(GenerateTest, PixelsThatAreNotDrawnAreGrey) {
  options_.max_values = 4;
  ASSERT_EQ(run(), kExitOk);
  std::vector<uint8_t> image = drawn(0);
  std::fill(image.begin() + 4, image.end(), 0x80);
  expect_sheet({image});
}

TEST_F(GenerateTest, ContinuesASession) {
  options_.session = "mine";
  ASSERT_EQ(run(), kExitOk);
  std::vector<uint8_t> image = drawn(0);
  std::fill(image.begin(), image.begin() + 5, 0x80);
  expect_sheet({image});
  EXPECT_EQ(server_.last_request().origin().session(), "mine");
}

TEST_F(GenerateTest, OnlyWithKeepAMissingSessionIsCreated) {
  use_symbols();
  server_.knows_sessions = true;
  options_.session = "mine";
  options_.max_values = 1;
  EXPECT_EQ(run(), kExitFailed) << "a name that is mistyped";
  EXPECT_TRUE(server_.sessions.empty());
  options_.keep = true;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_THAT(server_.sessions, ElementsAre("mine"));
}

TEST_F(GenerateTest, PrintsSymbolsAsTheyCome) {
  use_symbols();
  options_.values = "1, 2";
  options_.max_values = 6;
  options_.keep = true;
  options_.sampling.temperature = 0.5F;
  options_.sampling.top_k = 3;
  options_.sampling.top_p = 0.9F;
  options_.sampling.min_p = 0.1F;
  options_.sampling.greedy = true;
  options_.sampling.repetition_penalty = 1.25F;
  options_.sampling.presence_penalty = -0.5F;
  options_.sampling.frequency_penalty = 0.5F;
  options_.sampling.logit_bias = {"3=-100", "5=1.5"};
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_EQ(captured_.out(), "chchch\n");
  EXPECT_THAT(captured_.err(),
              AllOf(StartsWith("6 values, seed 42, in "), HasSubstr("1.000 bits per value"),
                    HasSubstr("session: kept-1")));
  const v1::GenerateRequest request = server_.last_request();
  EXPECT_THAT(request.values().values(), ElementsAre(1, 2));
  EXPECT_TRUE(request.keep() && request.sampling().greedy());
  EXPECT_FALSE(request.sampling().has_temperature()) << "greedy needs none";
  EXPECT_EQ(request.sampling().top_k(), 3);
  EXPECT_EQ(request.sampling().top_p(), 0.9F);
  EXPECT_EQ(request.sampling().min_p(), 0.1F);
  EXPECT_EQ(request.sampling().repetition_penalty(), 1.25F);
  EXPECT_EQ(request.sampling().presence_penalty(), -0.5F);
  EXPECT_EQ(request.sampling().frequency_penalty(), 0.5F);
  EXPECT_EQ(request.sampling().logit_bias().at(3), -100.0F);
  EXPECT_EQ(request.sampling().logit_bias().at(5), 1.5F);
}

TEST_F(GenerateTest, PrintsSeveralTextsOneAfterTheOther) {
  use_symbols();
  options_.count = 2;
  options_.max_values = 3;
  ASSERT_EQ(run(), kExitOk);
  EXPECT_EQ(captured_.out(), "--- sample 0\nchc\n--- sample 1\ndid\n");
}

TEST_F(GenerateTest, SendsAndPrintsText) {
  use_symbols();
  options_.model = "prose";
  options_.prompt = "Wo ist\n";
  options_.stop = {"\n\n", "."};
  options_.ignore_eos = true;
  options_.max_values = 5;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_EQ(captured_.out(), "\u00e9\\x1b \u00e9\\x1b \n") << "no numbers for held back text";
  const v1::GenerateRequest request = server_.last_request();
  EXPECT_EQ(request.text(), "Wo ist\n");
  EXPECT_THAT(request.stop_text(), ElementsAre("\n\n", "."));
  EXPECT_TRUE(request.ignore_eos());
}

TEST_F(GenerateTest, APromptComesFromAFile) {
  use_symbols();
  options_.model = "prose";
  const std::string text = "line\n\u5ddd\n";
  options_.prompt_file = folder_.write("prompt.txt", text);
  options_.max_values = 3;
  options_.count = 2;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_EQ(server_.last_request().text(), text);
  EXPECT_EQ(captured_.out(), "--- sample 0\n\u00e9\\x1b \n--- sample 1\n\u00e9\\x1b \n");
}

TEST_F(GenerateTest, PrintsJson) {
  use_symbols();
  options_.count = 2;
  options_.max_values = 3;
  options_.json = true;
  options_.top_log_probs = 2;
  ASSERT_EQ(run(), kExitOk);
  const auto json = nlohmann::json::parse(captured_.out());
  EXPECT_EQ(json["model"], "text");
  EXPECT_EQ(json["numerics"], "fake-1");
  EXPECT_EQ(json["seed"], 42);
  EXPECT_EQ(json["values"], 6);
  EXPECT_NEAR(json["bits_per_dim"].get<double>(), 1, 1e-6);
  EXPECT_EQ(json["samples"][1]["text"], "did");
  EXPECT_EQ(json["samples"][1]["values"], (std::vector{3, 8, 3}));
  EXPECT_EQ(json["samples"][0]["reason"], "LENGTH");
  EXPECT_EQ(json["samples"][0]["top_log_probs"].size(), 3);
  EXPECT_EQ(json["samples"][0]["top_log_probs"][0].size(), 2);
}

TEST_F(GenerateTest, PrintsJsonOfImages) {
  options_.json = true;
  options_.count = 3;
  ASSERT_EQ(run(), kExitOk);
  const auto json = nlohmann::json::parse(captured_.out());
  EXPECT_EQ(json["file"], options_.out);
  EXPECT_EQ(json["samples"].size(), 3);
  EXPECT_GT(json["images_per_second"], 0);
}

TEST_F(GenerateTest, FlagsThatCannotBeUsedEndWith2) {
  const auto error = [&](const std::function<void(GenerateOptions&)>& change) {
    CapturedConsole captured;
    GenerateOptions options = options_;
    change(options);
    EXPECT_EQ(run_generate(options, captured.console()), kExitUsage);
    const std::string message = captured.err();
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1);
    EXPECT_THAT(message, StartsWith("runnel: "));
    return message;
  };
  EXPECT_THAT(error([](auto& o) { o.model = "none"; }),
              HasSubstr("no model 'none'; it has 'small', 'text', 'prose'"));
  EXPECT_THAT(error([](auto& o) { o.model = ""; }), HasSubstr("choose one with --model"));
  EXPECT_THAT(error([](auto& o) { o.model = "text"; }), HasSubstr("--out is for models of images"));
  EXPECT_THAT(error([](auto& o) { o.prompt_image = "none.png", o.rows = 1; }),
              HasSubstr("none.png: cannot be opened: No such file"));
  EXPECT_THAT(error([](auto& o) { o.model = "text", o.out = "", o.prompt_image = "a.png"; }),
              HasSubstr("--prompt-image is for models of images"));
  EXPECT_THAT(error([](auto& o) { o.model = "text", o.out = "", o.prompt = "a"; }),
              HasSubstr("--prompt, --prompt-file and --stop are for models of text; model 'text'"));
  EXPECT_THAT(error([](auto& o) { o.no_begin = true; }),
              HasSubstr("--no-begin is for a prompt of text"));
  EXPECT_THAT(error([](auto& o) { o.stop = {"a"}; }), HasSubstr("--stop are for models of text"));
  EXPECT_THAT(error([](auto& o) { o.model = "prose", o.out = "", o.prompt = "ab\xff"; }),
              HasSubstr("--prompt is not valid UTF-8 at byte 2"));
  EXPECT_THAT(error([](auto& o) { o.model = "prose", o.out = "", o.stop = {"\xc3"}; }),
              HasSubstr("--stop is not valid UTF-8 at byte 0"));
  EXPECT_THAT(error([](auto& o) { o.model = "prose", o.out = "", o.prompt_file = "none.txt"; }),
              HasSubstr("none.txt: cannot be opened: No such file"));
  EXPECT_THAT(error([](auto& o) { o.keep = true, o.count = 2; }),
              HasSubstr("--keep with --count 2"));
  EXPECT_THAT(error([](auto& o) { o.top_log_probs = 2; }), HasSubstr("add --json"));
  EXPECT_THAT(error([](auto& o) { o.values = "256"; }), HasSubstr("--values: value 0 is '256'"));
  EXPECT_THAT(error([](auto& o) { o.out = "/no/such/place.png"; }), HasSubstr("no directory"));
  EXPECT_EQ(server_.last_request().model(), "") << "nothing was asked of the server";
}

TEST_F(GenerateTest, AFailedCallEndsWith1AndItsStatus) {
  server_.generate_instead = [](auto*, auto*) {
    return to_grpc(invalid_argument(place_of(fields::kSamples) + " is 99\nat most 64\x1b[2J"));
  };
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_EQ(captured_.err(), "runnel: INVALID_ARGUMENT: --count is 99 at most 64\\x1b[2J\n");
  EXPECT_TRUE(folder_.empty());
}

TEST_F(GenerateTest, AServerThatBreaksTheContractIsCaught) {
  server_.generate_instead = [](auto*, auto* writer) {
    v1::GenerateResponse event;
    event.mutable_values()->add_runs();
    while (writer->Write(event)) {
    }
    return grpc::Status::OK;
  };
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("does not begin with Started"));
}

TEST_F(GenerateTest, ShowsThePlaceOfAWaitingCall) {
  server_.generate_instead = [](auto*, auto* writer) {
    v1::GenerateResponse event;
    event.mutable_queued()->set_place(3);
    writer->Write(event);
    event.mutable_queued()->set_place(2);
    event.mutable_queued()->mutable_expected_wait()->set_seconds(1);
    event.mutable_queued()->mutable_expected_wait()->set_nanos(600'000'000);
    writer->Write(event);
    return to_grpc({Code::kResourceExhausted, place_of(fields::kMaxQueueTime) + " is over"});
  };
  options_.max_queue_time = 2.5;
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_EQ(captured_.err(),
            "waiting for a slot: place 3\n"
            "waiting for a slot: place 2, about 2 s\n"
            "runnel: RESOURCE_EXHAUSTED: --max-queue-time is over\n");
  EXPECT_EQ(server_.last_request().max_queue_time().seconds(), 2);
  EXPECT_EQ(server_.last_request().max_queue_time().nanos(), 500'000'000);
}

TEST_F(GenerateTest, OnlyAGivenTimeToWaitReplacesTheServersOwn) {
  EXPECT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_FALSE(server_.last_request().has_max_queue_time());
  options_.max_queue_time = 0;
  EXPECT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_TRUE(server_.last_request().has_max_queue_time());
}

TEST_F(GenerateTest, AStreamThatEndsEarlyIsCaught) {
  server_.generate_instead = [](auto*, auto* writer) {
    v1::GenerateResponse event;
    event.mutable_started();
    writer->Write(event);
    return grpc::Status::OK;
  };
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("ended while sample 0 ran"));
  EXPECT_TRUE(folder_.empty());
}

TEST_F(GenerateTest, TheDeadlineEndsACall) {
  server_.generate_instead = [](grpc::ServerContext* context, auto*) {
    wait_until_cancelled(*context);  // which may be after the test's last line
    return grpc::Status::CANCELLED;
  };
  options_.timeout = 0.3;
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("--timeout")));
}

TEST_F(GenerateTest, AnInterruptCancelsTheCall) {
  std::atomic<bool> cancelled = false;
  server_.generate_instead = [&](grpc::ServerContext* context, auto* writer) {
    v1::GenerateResponse event;
    event.mutable_started();
    writer->Write(event);
    kill(getpid(), SIGINT);
    wait_until_cancelled(*context);
    cancelled = true;
    return grpc::Status::CANCELLED;
  };
  EXPECT_EQ(run(), kExitInterrupted);
  EXPECT_THAT(captured_.err(), HasSubstr("interrupted; no image was written"));
  EXPECT_TRUE(eventually([&] { return cancelled.load(); }));
  EXPECT_TRUE(folder_.empty());
}

TEST_F(GenerateTest, DrawsAProgressBarOnATerminal) {
  WatchedText text;
  std::ostream err(&text);
  std::ostringstream out;
  Console console{.out = out,
                  .err = err,
                  .err_terminal = true,
                  .columns = [] { return 70; },
                  .clock = Clock(TimePoint())};
  const auto make_drawing_due = [&] { console.clock.advance(std::chrono::milliseconds(100)); };
  server_.generate_instead = [&](auto*, auto* writer) {
    v1::GenerateResponse event;
    event.mutable_started();
    make_drawing_due();
    writer->Write(event);
    EXPECT_TRUE(text.comes_to_have("  0%  "));
    make_drawing_due();
    for (int position = 0; position < 12; ++position) {
      event.Clear();
      v1::ValueRun& run = *event.mutable_values()->add_runs();
      run.set_position(position);
      run.add_values(1);
      run.add_log_probs(-1);
      writer->Write(event);
    }
    event.mutable_finished();
    writer->Write(event);
    return grpc::Status::OK;
  };
  ASSERT_EQ(run_generate(options_, console), kExitOk) << text.str();
  EXPECT_THAT(text.str(), AllOf(HasSubstr("\r\x1b[K["), HasSubstr("  8%  "), HasSubstr(" left"),
                                testing::EndsWith("\r\x1b[K")));
}

TEST_F(GenerateTest, RefusesFileNamesOfOtherImageFormats) {
  for (const char* name : {"sheet.jpg", "sheet.JPEG", "sheet.webp"}) {
    options_.out = folder_.path(name);
    EXPECT_EQ(run(), kExitUsage);
  }
  EXPECT_THAT(captured_.err(), HasSubstr("runnel writes PNG: name it"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(GenerateTest, ErrorsNameTheFlagsInsteadOfTheFieldsOfTheServer) {
  const Status refused =
      invalid_argument(place_of(fields::kSamples) + " is 65; it must be between 1 and 64");
  server_.generate_instead = [&](auto*, auto*) { return to_grpc(refused); };
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_EQ(captured_.err(),
            "runnel: INVALID_ARGUMENT: --count is 65; it must be between 1 and 64\n");
}

TEST(FieldFlags, ReplaceFieldsInMessages) {
  for (const auto flag_of :
       {generate_flag, chat_flag, draw_flag, score_flag, session_flag, session_load_flag}) {
    for (const std::string_view field : fields::kAll) {
      const std::string_view flag = flag_of(field);
      const Status status = in_flags(invalid_argument(place_of(field) + " is wrong"), flag_of);
      EXPECT_EQ(status.message(), std::string(flag.empty() ? field : flag) + " is wrong");
    }
  }
  const Status no_field = not_found("no model 'samples'");
  EXPECT_EQ(in_flags(no_field, generate_flag).message(), "no model 'samples'");
}

TEST_F(GenerateTest, ReadsThePromptFromStandardInput) {
  use_symbols();
  options_.model = "prose";
  options_.prompt_file = "-";
  options_.max_values = 2;
  std::istringstream input("Wo ist");
  std::streambuf* before = std::cin.rdbuf(input.rdbuf());
  const int code = run();
  std::cin.rdbuf(before);
  ASSERT_EQ(code, kExitOk) << captured_.err();
  EXPECT_EQ(server_.last_request().text(), "Wo ist");
}

TEST_F(GenerateTest, StopsWhenOutputCannotBeWritten) {
  use_symbols();
  options_.max_values = 100'000;
  std::ofstream full("/dev/full");
  std::ostringstream err;
  Console console{.out = full, .err = err};
  EXPECT_EQ(run_generate(options_, console), kExitFailed);
  EXPECT_THAT(err.str(), HasSubstr("standard output could not be written"));
}

}  // namespace
}  // namespace runnel
