#include "config/server_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/base/case_name.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Status parse(const std::string& text) {
  ServerConfig config;
  return parse_config(text, "a.json", config);
}

TEST(ServerConfig, AnOldNameOfASettingIsStillTaken) {
  ServerConfig config;
  ASSERT_TRUE(parse_config(R"({"state": "replay", "stored_states": "/a"})", "f", config).ok());
  EXPECT_EQ(config.gpu_state, "replay");
  EXPECT_EQ(config.stored_states, "/a");
  EXPECT_THAT(config.old_names, ElementsAre("f: state is called gpu_state now"));
}

TEST(ServerConfig, EachOfSeveralFilesIsTakenFromTheDirectoryOfTheFile) {
  ServerConfig config;
  ASSERT_TRUE(parse_config(R"({"seal_keys": "new.key, /b/old.key"})", "/etc/a.json", config).ok());
  EXPECT_EQ(config.seal_keys, "/etc/new.key,/b/old.key");
  ASSERT_TRUE(parse_config(R"({"seal_key": "one.key"})", "/etc/a.json", config).ok());
  EXPECT_EQ(config.seal_keys, "/etc/one.key");
  EXPECT_THAT(config.old_names, ElementsAre("/etc/a.json: seal_key is called seal_keys now"));
}

TEST(ServerConfig, DefaultsMatchTheTableOfLimits) {
  const ServerConfig config;
  EXPECT_EQ(config.address, "127.0.0.1:50051");
  EXPECT_EQ(config.backend, "auto");
  for (const Limit* limit : all_limits()) EXPECT_EQ(config.limit(*limit), limit->default_value);
}

TEST(ServerConfig, AFileChangesOnlyTheSettingsThatItHas) {
  ServerConfig config;
  const Status status = parse_config(
      R"({"models": [{"path": "/b/one"}, {"name": "two", "path": "sub/../dir"}],
          "address": "[::]:7", "keys": "keys.jsonl", "insecure_public": true, "threads": 3,
          "log": {"json": true}, "limits": {"sessions": 9}})",
      "/etc/runnel/a.json", config);
  ASSERT_TRUE(status.ok()) << status.message();
  const std::vector<ModelConfig> models = {{"", "/b/one"}, {"two", "/etc/runnel/dir"}};
  EXPECT_EQ(config.models, models);
  EXPECT_EQ(config.address, "[::]:7");
  EXPECT_EQ(config.keys, "/etc/runnel/keys.jsonl") << "as the paths of bundles";
  EXPECT_TRUE(config.insecure_public);
  EXPECT_EQ(config.threads, 3);
  EXPECT_TRUE(config.log_json);
  EXPECT_EQ(config.log_level, "info");
  EXPECT_EQ(config.limit(limits::kSessions), 9);
  EXPECT_EQ(config.limit(limits::kMailbox), limits::kMailbox.default_value);
}

TEST(ServerConfig, AModelMayHaveAliases) {
  ServerConfig config;
  ASSERT_TRUE(
      parse_config(R"({"models": [{"path": "/a", "aliases": ["x", "y"]}]})", "a.json", config)
          .ok());
  EXPECT_EQ(config.models[0].aliases, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(check_config(config).ok());
  config.models.push_back({"x", "/b"});
  EXPECT_THAT(check_config(config).message(), HasSubstr("two models are named 'x'"));
  config.models.back() = {"z", "/b", {"no name"}};
  EXPECT_THAT(check_config(config).message(), HasSubstr("found 'no name'"));
  config.models.back().aliases.assign(17, "a");
  EXPECT_EQ(check_config(config).message(), "a model has 17 aliases; at most 16 are allowed");
}

TEST(ServerConfig, FilesAreNamedFromTheConfigFile) {
  ServerConfig config;
  const Status status =
      parse_config(R"({"tls": {"cert": "a.pem", "key": "/keys/b.pem", "client_ca": ""}})",
                   "/etc/runnel/a.json", config);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.tls_cert, "/etc/runnel/a.pem");
  EXPECT_EQ(config.tls_key, "/keys/b.pem");
  EXPECT_EQ(config.tls_client_ca, "");
}

TEST(ServerConfig, AStoreIsNamedFromTheConfigFile) {
  const auto url_of = [](const std::string& url) {
    ServerConfig config;
    const std::string text = R"({"storage": {"url": ")" + url + "\"}}";
    EXPECT_TRUE(parse_config(text, "/etc/runnel/a.json", config).ok()) << url;
    return config.storage_url;
  };
  EXPECT_EQ(url_of("dir:sessions"), "dir:/etc/runnel/sessions");
  EXPECT_EQ(url_of("dir:/var/sessions"), "dir:/var/sessions");
  EXPECT_EQ(url_of("dir:"), "dir:");
  EXPECT_EQ(url_of("redis://here/1"), "redis://here/1");
}

TEST(ServerConfig, ACertificateAndItsKeyGoTogether) {
  ServerConfig config;
  config.models = {{"", "/b"}};
  config.tls_cert = "/a.pem";
  EXPECT_THAT(check_config(config).message(), StartsWith("tls.cert is set and tls.key is not"));
  config.tls_key = "/b.pem";
  config.tls_client_ca = "/c.pem";
  EXPECT_TRUE(check_config(config).ok());
  config.tls_cert = "";
  EXPECT_THAT(check_config(config).message(), StartsWith("tls.key is set and tls.cert is not"));
  config.tls_key = "";
  EXPECT_THAT(check_config(config).message(), HasSubstr("certificates of clients need TLS"));
}

TEST(ServerConfig, AStoreIsADirectoryRedisOrMemory) {
  ServerConfig config;
  config.models = {{"", "/b"}};
  for (const char* const url : {"", "memory", "dir:sessions"}) {
    config.storage_url = url;
    EXPECT_TRUE(check_config(config).ok()) << url;
  }
  for (const char* const url : {"dir:", "sessions", "redis:localhost"}) {
    config.storage_url = url;
    EXPECT_THAT(check_config(config).message(), HasSubstr("it must be dir:PATH")) << url;
  }
}

TEST(ServerConfig, StatesInRedisAreSealed) {
  ServerConfig config;
  config.models = {{"", "/b"}};
  for (const char* const url : {"redis://localhost", "rediss://localhost/1", "unix:/run/redis"}) {
    config.storage_url = url;
    config.seal_keys = "";
    EXPECT_THAT(check_config(config).message(), HasSubstr("states must be sealed")) << url;
    config.seal_keys = "/k";
    EXPECT_TRUE(check_config(config).ok()) << url;
  }
}

TEST(ServerConfig, APasswordAndTlsFilesNeedRedis) {
  ServerConfig config;
  config.models = {{"", "/b"}};
  config.seal_keys = "/k";
  config.storage_password_file = "/p";
  EXPECT_THAT(check_config(config).message(), StartsWith("storage.password_file is set, and"));
  config.storage_url = "redis://ada@localhost";
  EXPECT_TRUE(check_config(config).ok());
  for (std::string* const file : {&config.storage_ca, &config.storage_cert, &config.storage_key}) {
    config.storage_url = "redis://ada@localhost";
    *file = "/file";
    EXPECT_THAT(check_config(config).message(), HasSubstr("does not begin with rediss://"));
    config.storage_url = "rediss://ada@localhost";
    EXPECT_EQ(check_config(config).message(), file == &config.storage_cert
                                                  ? "storage.cert is set and storage.key is not: a "
                                                    "certificate and its key go together"
                                                  : "");
  }
  config.storage_password_file = "";
  EXPECT_THAT(check_config(config).message(), HasSubstr("names the user 'ada'"));
}

TEST(ServerConfig, TheExampleParsesAndHoldsEveryDefault) {
  ServerConfig config;
  const Status status = read_config_file("config/serve.json", config);
  ASSERT_TRUE(status.ok()) << status.message();
  ServerConfig expected;
  expected.models = {{"mnist-small", "zoo/mnist-small"}};
  EXPECT_EQ(config, expected);
  EXPECT_TRUE(check_config(config).ok());
}

struct Bad {
  const char* text;
  const char* message;

  friend void PrintTo(const Bad& of, std::ostream* out) { *out << of.text; }
};

class BadFile : public ::testing::TestWithParam<Bad> {};

TEST_P(BadFile, IsRefusedWithOnePreciseError) {
  const Status status = parse(GetParam().text);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), std::string("a.json: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    ServerConfig, BadFile,
    ::testing::Values(
        Bad{"[]", "the file is an array of 0; expected an object"},
        Bad{"3", "the file is 3; expected an object"},
        Bad{R"({"models": {}})", "models is an object; expected an array of objects"},
        Bad{R"({"models": ["x"]})", "models[0] is 'x'; expected an object with path and name"},
        Bad{R"({"models": [{"path": "a"}, {}]})",
            "models[1].path is missing; expected the directory of a bundle"},
        Bad{R"({"models": [{"path": 1}]})", "models[0].path is 1; expected a string"},
        Bad{R"({"models": [{"path": "a", "aliases": "b"}]})",
            "models[0].aliases is 'b'; expected an array of names"},
        Bad{R"({"models": [{"paht": "a"}]})",
            "models[0] has an unknown key 'paht'; did you mean 'path'?"},
        Bad{R"({"limits": {"sessions": "9"}})",
            "limits.sessions is '9'; expected a whole number between 0 and 1048576"},
        Bad{R"({"limits": {"sessions": 1.5}})",
            "limits.sessions is 1.5; expected a whole number between 0 and 1048576"},
        Bad{R"({"limits": {"sessions": 18446744073709551615}})",
            "limits.sessions is 18446744073709551615; expected a whole number between 0 and "
            "1048576"},
        Bad{R"({"limits": {"sessions": -1}})",
            "limits.sessions is -1; it must be between 0 and 1048576"},
        Bad{R"({"limits": {"sesions": 1}})",
            "limits has an unknown key 'sesions'; did you mean 'sessions'?"},
        Bad{R"({"limits": 3})", "limits is 3; expected an object"},
        Bad{R"({"log": {"json": "yes"}})", "log.json is 'yes'; expected true or false"},
        Bad{R"({"log": {"level": "loud"}})",
            "log.level is 'loud'; it must be debug, info, warn or error"},
        Bad{R"({"address": null})", "address is null; expected a string"},
        Bad{R"({"address": ""})", "address is empty; it must have at least one character"},
        Bad{R"({"threads": 1, "threads": 2})", "key 'threads' appears twice; expected once"},
        Bad{R"({"isa": "neon"})",
            "isa is 'neon'; it must be auto, portable, avx2, avx512, avx512bf16 or amx"}),
    [](const auto& info) { return case_name(info.index, info.param.text); });

TEST(ServerConfig, AnUnknownKeyIsRefusedWithTheNearestOrAll) {
  EXPECT_EQ(parse(R"({"adress": "x"})").message(),
            "a.json has an unknown key 'adress'; did you mean 'address'?");
  EXPECT_EQ(
      parse(R"({"colour": 1})").message(),
      "a.json has an unknown key 'colour'; known are models, address, metrics_address, "
      "http_address, http_hosts, http_origins, queue_time_ms, http_queue_time_ms, keys, "
      "insecure_public, tls, stored_states, seal_keys, storage, rewind, "
      "backend, isa, threads, precision, context, cache, kernels, gpu_state, prompts, network, "
      "log, limits");
  EXPECT_THAT(parse(R"({"limits.sessions": 1})").message(),
              HasSubstr("unknown key 'limits.sessions'"));
  // A limit at the wrong level is an unknown key.
  EXPECT_THAT(parse(R"({"sessions": 1})").message(), HasSubstr("unknown key 'sessions'"));
}

TEST(ServerConfig, InvalidJsonIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string(R"({"a")"), std::string("{} {}"),
        std::string("{\"a\":\xff}"), std::string("{}\0", 3), std::string("// x\n{}")}) {
    const Status status = parse(text);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), StartsWith("a.json: not valid JSON: "));
  }
  EXPECT_THAT(parse(std::string(200000, '[')).message(), StartsWith("a.json: "));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "{\"a\":";
  deep += "1" + std::string(1000, '}');
  EXPECT_EQ(parse(deep).message(), "a.json: nested deeper than 8 levels; expected fewer");
  EXPECT_THAT(parse(std::string(2 << 20, ' ')).message(),
              HasSubstr("2097152 bytes of JSON; expected at most 1048576"));
}

TEST(ServerConfig, RandomBytesDoNotBreakTheParser) {
  std::mt19937 random(11);
  const std::string seed =
      R"({"models":[{"name":"a","path":"b"}],"limits":{"sessions":1},"log":{"json":true}})";
  for (int i = 0; i < 20000; ++i) {
    std::string text = seed;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, 1);
      } else {
        text[at] = static_cast<char>(random() % 256);
      }
      if (text.empty()) break;
    }
    const Status status = parse(text);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_FALSE(status.message().empty());
    }
  }
}

TEST(ServerConfig, RewindTakesTwoNumbers) {
  EXPECT_EQ(parse_rewind("")->values, 0);
  EXPECT_EQ(parse_rewind("256,64")->values, 256);
  EXPECT_EQ(parse_rewind("256,64")->every, 64);
  for (const char* text : {",", "1", "1,", ",1", "0,1", "1,0", "-1,1", "1,2,3", "1, 2", "a,b",
                           "1048577,1", "1,1048577", "99999999999999999999,1"}) {
    const auto rewind = parse_rewind(text);
    EXPECT_EQ(rewind.status().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(rewind.status().message(), HasSubstr("as in 256,64"));
  }
}

TEST(ServerConfig, AFileThatIsNotThereIsNotFound) {
  ServerConfig config;
  EXPECT_EQ(read_config_file("/no/such.json", config).code(), Code::kNotFound);
  EXPECT_EQ(read_config_file("/tmp", config).code(), Code::kInvalidArgument);
}

TEST(ParseModel, TakesADirectoryWithAndWithoutAName) {
  EXPECT_EQ(*parse_model("zoo/mnist"), (ModelConfig{"", "zoo/mnist"}));
  EXPECT_EQ(*parse_model("m=zoo/mnist"), (ModelConfig{"m", "zoo/mnist"}));
  EXPECT_EQ(*parse_model("/a/b=c"), (ModelConfig{"", "/a/b=c"}));
  for (const char* bad : {"", "=x", "a="}) {
    EXPECT_EQ(parse_model(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

ServerConfig config_with(const std::string& address) {
  ServerConfig config;
  config.models = {{"", "zoo/mnist"}};
  config.address = address;
  return config;
}

TEST(SetChatTemplate, FindsTheModelByItsNameOrDirectory) {
  std::vector<ModelConfig> models = {{"m", "zoo/mnist"}, {"", "zoo/text/"}, {"", "zoo/code"}};
  EXPECT_TRUE(set_chat_template("m=a.jinja", models).ok());
  EXPECT_TRUE(set_chat_template("text=b=c.jinja", models).ok());
  EXPECT_EQ(models[0].chat_template, "a.jinja");
  EXPECT_EQ(models[1].chat_template, "b=c.jinja");
  EXPECT_EQ(models[2].chat_template, "");
  for (const char* bad : {"", "=a", "m", "m="}) {
    EXPECT_THAT(set_chat_template(bad, models).message(), HasSubstr("expected NAME=FILE")) << bad;
  }
  EXPECT_THAT(set_chat_template("mnist=a", models).message(),
              HasSubstr("'mnist'; expected one of: 'm', 'text', "));
}

TEST(ServerConfig, AModelMayHaveAChatTemplate) {
  ServerConfig config;
  const std::string text = R"({"models": [{"path": "m", "chat_template": "t.jinja"}]})";
  ASSERT_TRUE(parse_config(text, "/etc/serve.json", config).ok());
  EXPECT_EQ(config.models[0].chat_template, "/etc/t.jinja");
}

TEST(CheckConfig, NamesTheFault) {
  EXPECT_THAT(check_config(ServerConfig()).message(), HasSubstr("nothing to serve"));
  ServerConfig config = config_with("127.0.0.1:0");
  EXPECT_TRUE(check_config(config).ok());
  config.models = {{"a", "x"}, {"a", "y"}};
  EXPECT_THAT(check_config(config).message(), HasSubstr("two models are named 'a'"));
  config.models = {{"a b", "x"}};
  EXPECT_THAT(check_config(config).message(), HasSubstr("found 'a b'"));
  config.models = {{std::string(129, 'a'), "x"}};
  EXPECT_THAT(check_config(config).message(), HasSubstr("1 to 128 characters"));
  config.models.assign(65, {"", "x"});
  EXPECT_EQ(check_config(config).message(), "models has 65 entries; at most 64 are allowed");
}

TEST(CheckConfig, TheAddressForMetricsIsAnAddressOrNone) {
  ServerConfig config = config_with("127.0.0.1:0");
  EXPECT_EQ(config.metrics_address, "");
  ASSERT_TRUE(parse_config(R"({"metrics_address": "127.0.0.1:9464"})", "f", config).ok());
  EXPECT_TRUE(check_config(config).ok());
  ASSERT_TRUE(parse_config(R"({"metrics_address": "9464"})", "f", config).ok());
  EXPECT_THAT(check_config(config).message(),
              HasSubstr("metrics_address is '9464'; expected host:port"));
  ASSERT_TRUE(parse_config(R"({"metrics_address": ""})", "f", config).ok());
  EXPECT_TRUE(check_config(config).ok());
}

TEST(CheckConfig, AHostOrAnOriginThatCouldNotMatchIsRefused) {
  ServerConfig config;
  config.models = {{"", "x"}};
  config.http_hosts = "models.example.org, 10.0.0.1,[::1]";
  config.http_origins = "https://app.example.org, http://localhost:8080,null";
  EXPECT_TRUE(check_config(config).ok()) << check_config(config).message();
  for (const char* host : {"a.org:80", "http://a.org", "a.org/", "a.org.", "*.a.org", "::1",
                           "[::1]:80", "[::1", "a b", "me@a.org"}) {
    config.http_hosts = host;
    EXPECT_THAT(check_config(config).message(), HasSubstr("expected the name of a host alone"))
        << host;
  }
  config.http_hosts = "";
  for (const char* origin : {"app.example.org", "https://a.org/", "https://a.org/b", "://a", "*",
                             "https://*.a.org", "https://a.org?b", "https://me@a.org"}) {
    config.http_origins = origin;
    EXPECT_THAT(check_config(config).message(), HasSubstr("expected scheme://host")) << origin;
  }
  for (const char* origin : {"https://a.org:443", "http://a.org:80"}) {
    config.http_origins = origin;
    EXPECT_THAT(check_config(config).message(), HasSubstr("leave out the port")) << origin;
  }
  config.http_origins = "https://a.org:80, http://a.org:443";
  EXPECT_TRUE(check_config(config).ok()) << check_config(config).message();
}

TEST(CheckConfig, BoundsTheMemoryOfAStream) {
  ServerConfig config = config_with("127.0.0.1:0");
  ASSERT_TRUE(
      parse_config(R"({"limits": {"stream_room": 1048576, "samples": 16}})", "f", config).ok());
  EXPECT_TRUE(check_config(config).ok());
  ASSERT_TRUE(parse_config(R"({"limits": {"samples": 4096}})", "f", config).ok());
  EXPECT_EQ(check_config(config).message(),
            "limits.stream_room is 1048576 and limits.samples is 4096: one stream would hold "
            "4294967296 values, and may hold 16777216; lower one of them");
}

TEST(CheckConfig, CallBytesMustHoldTheLargestMessage) {
  ServerConfig config = config_with("127.0.0.1:0");
  ASSERT_TRUE(parse_config(R"({"limits": {"call_bytes": 17000000}})", "f", config).ok());
  EXPECT_EQ(check_config(config).message(),
            "limits.call_bytes is 17000000; it must be at least 17825792, 17 times "
            "limits.message_bytes, or the largest message cannot be read");
  ASSERT_TRUE(parse_config(R"({"limits": {"message_bytes": 1000000}})", "f", config).ok());
  EXPECT_TRUE(check_config(config).ok());
}

TEST(CheckConfig, AnIdleSessionMustOutliveTheWaitForItsStore) {
  ServerConfig config = config_with("127.0.0.1:0");
  ASSERT_TRUE(parse_config(R"({"limits": {"idle_timeout_ms": 11999},
                               "storage": {"timeout_ms": 10000}})",
                           "f", config)
                  .ok());
  EXPECT_TRUE(check_config(config).ok()) << "there is no store";
  config.storage_url = "dir:/var/lib/store";
  EXPECT_EQ(check_config(config).message(),
            "limits.idle_timeout_ms is 11999 and storage.timeout_ms is 10000: a session could end "
            "before the store has it; set limits.idle_timeout_ms to at least 12000, or lower "
            "storage.timeout_ms");
  ASSERT_TRUE(parse_config(R"({"limits": {"idle_timeout_ms": 12000}})", "f", config).ok());
  EXPECT_TRUE(check_config(config).ok());
}

TEST(CheckConfig, GpuOnlySettingsAreRefusedOnTheCpu) {
  ServerConfig config = config_with("127.0.0.1:0");
  config.kernels = "cublas";
  EXPECT_TRUE(check_config(config).ok()) << "there may be a GPU";
  config.backend = "cpu";
  EXPECT_EQ(check_config(config).message(),
            "--kernels is 'cublas', which backend cpu does not have; use --backend cuda, or "
            "--kernels own");
  config.kernels = "own";
  EXPECT_TRUE(check_config(config).ok());
  config.gpu_state = "replay";
  EXPECT_THAT(check_config(config).message(), HasSubstr("or --gpu-state plain"));
  config.gpu_state = "plain";
  config.prompts = "chunks";
  EXPECT_THAT(check_config(config).message(), HasSubstr("or --prompts steps"));
  config.prompts = "steps";
  config.network = "operations";
  EXPECT_EQ(check_config(config).message(),
            "--network is 'operations', which backend cpu does not have; use --backend cuda, or "
            "--network whole");
}

TEST(CheckConfig, AnAddressIsAHostAndAPort) {
  for (const char* good : {"127.0.0.1:50051", "[::1]:0", "localhost:65535", "unix:/tmp/x"}) {
    EXPECT_TRUE(check_config(config_with(good)).ok()) << good;
  }
  for (const char* bad : {"127.0.0.1", ":1", "host:", "host:65536", "host:99999999999", "host:1x",
                          "unix:", "host:-1"}) {
    EXPECT_THAT(check_config(config_with(bad)).message(), HasSubstr("expected host:port")) << bad;
  }
}

}  // namespace
}  // namespace runnel
