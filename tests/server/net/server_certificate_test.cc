#include "server/net/server_certificate.h"

#include <gmock/gmock.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "tests/base/certificates.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

using testing::HasSubstr;

class ServerCertificateTest : public testing::Test {
 protected:
  ServerCertificateTest() : certificate_(files(), log_) {
    write(first_);
    folder_.write("ca.pem", authority_.pem());
  }
  TlsFiles files() const {
    return {.certificate = folder_.path("cert.pem"),
            .key = folder_.path("key.pem"),
            .client_authorities = folder_.path("ca.pem")};
  }
  void write(const PemPair& pair) const {
    folder_.write("cert.pem", pair.certificate);
    folder_.write("key.pem", pair.key);
  }
  std::string subject() const { return certificate_.current()->identity.subject; }
  // The number of times that the log contains these words.
  int said(const std::string& words) const {
    int count = 0;
    const std::string all = text_.str();
    for (size_t at = all.find(words); at != std::string::npos; at = all.find(words, at + 1))
      ++count;
    return count;
  }

  const TestFolder folder_;
  const TestAuthority authority_{"an authority"};
  const PemPair first_ = authority_.issue("first"), second_ = authority_.issue("second");
  std::ostringstream text_;
  EventLog log_{"debug", false, text_};
  ServerCertificate certificate_;
};

TEST_F(ServerCertificateTest, AChangedCertificateIsLoaded) {
  ASSERT_TRUE(certificate_.load().ok());
  EXPECT_EQ(subject(), "CN=first");
  const auto before = certificate_.current();
  certificate_.refresh();
  EXPECT_EQ(certificate_.current(), before) << "the same pointer: nothing has changed";
  write(second_);
  certificate_.refresh();
  EXPECT_EQ(subject(), "CN=second");
  EXPECT_EQ(before->identity.subject, "CN=first") << "whoever holds it still has it";
  EXPECT_EQ(said("info certificate subject=\"CN=second\" expires=20"), 1);
}

TEST_F(ServerCertificateTest, StaysIfTheNewCertificateIsInvalidAndLogsItOnce) {
  ASSERT_TRUE(certificate_.load().ok());
  folder_.write("cert.pem", second_.certificate);
  for (int i = 0; i < 3; ++i) certificate_.refresh();
  EXPECT_EQ(subject(), "CN=first");
  EXPECT_EQ(said("is not the key of"), 1);
  EXPECT_EQ(said("the one that was read before stays"), 1);
  folder_.write("key.pem", second_.key);
  certificate_.refresh();
  EXPECT_EQ(subject(), "CN=second");
  folder_.write("cert.pem", first_.certificate);
  certificate_.refresh();
  EXPECT_EQ(said("is not the key of"), 2) << "a new complaint is told again";
}

TEST_F(ServerCertificateTest, AuthoritiesOfClientsChangeToo) {
  ASSERT_TRUE(certificate_.load().ok());
  const std::string other = TestAuthority("another").pem();
  folder_.write("ca.pem", other);
  certificate_.refresh();
  EXPECT_EQ(certificate_.current()->client_authorities, other);
  folder_.write("ca.pem", "");
  certificate_.refresh();
  EXPECT_EQ(certificate_.current()->client_authorities, other);
  EXPECT_EQ(said("ca.pem has no certificate"), 1);
}

TEST_F(ServerCertificateTest, MustBeValidAtTheStart) {
  folder_.write("key.pem", second_.key);
  EXPECT_THAT(certificate_.load().message(), HasSubstr("is not the key of"));
  EXPECT_EQ(certificate_.current(), nullptr);
}

TEST_F(ServerCertificateTest, ReadersNeverSeeAMixOfTwoCertificates) {
  ASSERT_TRUE(certificate_.load().ok());
  std::atomic<bool> done{false};
  int torn = 0;
  std::thread reader([&] {
    while (!done) {
      const auto current = certificate_.current();
      const PemPair& pair = current->identity.subject == "CN=first" ? first_ : second_;
      torn += current->identity.key == pair.key ? 0 : 1;
    }
  });
  for (int i = 0; i < 10; ++i) {
    write(i % 2 == 0 ? second_ : first_);
    certificate_.refresh();
  }
  done = true;
  reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(said("warn"), 0);
}

}  // namespace
}  // namespace runnel
