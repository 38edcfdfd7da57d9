#!/bin/sh
# Makes the certificates and keys of the tests, for a hundred years. They are public: nothing but a test may use them.
set -eu
cd "$(dirname "$0")"
days=36500
names="subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }
authority() {
    key "$1.key"
    openssl req -x509 -new -key "$1.key" -days $days -subj "/CN=Lycosa test $1" -out "$1.pem"
}
# signed NAME AUTHORITY EXTENSION DAYS
signed() {
    key "$1.key"
    openssl req -new -key "$1.key" -subj "/CN=$1" -addext "$3" |
        openssl x509 -req -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days "$4" -copy_extensions copy -out "$1.pem"
    rm -f "$2.srl"
}
authority ca
authority stranger
signed server ca "$names" $days
signed renewed ca "$names" $days
signed elsewhere ca "subjectAltName=DNS:queue.example" $days
signed client ca "subjectAltName=DNS:client.example" $days
signed unknown stranger "subjectAltName=DNS:client.example" $days
key self.key
openssl req -x509 -new -key self.key -days $days -subj /CN=localhost -addext "$names" -out self.pem
# Valid in January 2020 alone.
key expired.key
TZ=UTC faketime '2020-01-01 00:00:00' openssl req -x509 -new -key expired.key -days 30 -subj /CN=localhost -addext "$names" -out expired.pem
key old.key
openssl req -new -key old.key -subj /CN=localhost |
    openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days $days -out old.pem
rm -f ca.srl
openssl pkey -in server.key -aes256 -passout pass:secret -out encrypted.key
openssl x509 -in server.pem -outform der -out server.der
rm -f ca.key stranger.key
