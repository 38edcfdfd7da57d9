'use strict';
// A Lycosa server of the test's own: a free loopback port, a data folder that goes away with it, stopped by its own pid.

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const Tarantool = require('tarantool-driver');

const ADMIN_PASSWORD = 'admin of the tests';
const START_SECONDS = 180;

/** The server to test: LYCOSA_BIN, or the debug build. */
function binary() {
  const top = path.resolve(__dirname, '../..');
  const target = process.env.CARGO_TARGET_DIR || path.join(top, 'target');
  return process.env.LYCOSA_BIN || path.join(target, 'debug', 'lycosa');
}

/** The environment without settings: variables of this name are settings to the server, and those of the tests are not meant. */
function environment() {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('LYCOSA_'));
  return { ...Object.fromEntries(kept), NO_COLOR: '1' };
}

/** Above the ports of the other tests, below the range that clients get theirs from. */
const PORTS = { first: 30_000, count: 2_500 };
let taken = 0;

/** Resolves to a port without a listener. Test files run as processes side by side: each begins at its own place. */
async function freePort() {
  for (let step = 0; step < PORTS.count; step += 1) {
    const port = PORTS.first + ((process.pid * 41 + taken) % PORTS.count);
    taken += 1;
    if (await isFree(port)) return port;
  }
  throw new Error(`no port from ${PORTS.first} on is free`);
}

function isFree(port) {
  return new Promise((resolve) => {
    const probe = net.createServer();
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}

/** Resolves to whether a server sends its greeting there. */
function greets(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    const answer = (is) => {
      socket.destroy();
      resolve(is);
    };
    socket.once('data', (data) => answer(data.toString('latin1').startsWith('Tarantool')));
    socket.once('error', () => answer(false));
    socket.setTimeout(1000, () => answer(false));
  });
}

class Server {
  /** `settings`: further lines of the configuration, before its tables. */
  static async start({ settings = [] } = {}) {
    const server = new Server();
    server.settings = settings;
    server.port = await freePort();
    server.httpPort = await freePort();
    server.folder = fs.mkdtempSync(path.join(os.tmpdir(), 'lycosa-test-'));
    await server.launch();
    return server;
  }

  async launch() {
    const config = path.join(this.folder, 'lycosa.toml');
    fs.writeFileSync(
      config,
      [
        `listen = "127.0.0.1:${this.port}"`,
        `data_dir = ${JSON.stringify(path.join(this.folder, 'data'))}`,
        `http.listen = "127.0.0.1:${this.httpPort}"`,
        ...this.settings,
        '[[user]]',
        'name = "admin"',
        `password = "${ADMIN_PASSWORD}"`,
        '[[user]]',
        'name = "guest"',
        'roles = ["super"]',
        '',
      ].join('\n'),
    );
    const log = fs.openSync(path.join(this.folder, 'log'), 'a');
    this.process = spawn(binary(), ['serve', '--config', config], {
      cwd: this.folder,
      env: environment(),
      stdio: ['ignore', log, log],
    });
    fs.closeSync(log);
    this.ended = new Promise((resolve) => this.process.once('close', resolve));
    const deadline = Date.now() + START_SECONDS * 1000;
    while (!(await greets(this.port))) {
      if (this.process.exitCode !== null || Date.now() > deadline) {
        throw new Error(`the server did not start; its log:\n${this.log()}`);
      }
      await sleep(10);
    }
  }

  /** SIGTERM, the wait for the end, the folder removed. */
  async stop() {
    if (this.process.exitCode === null) {
      this.process.kill('SIGTERM');
      const killer = setTimeout(() => this.process.kill('SIGKILL'), 20_000);
      await this.ended;
      clearTimeout(killer);
    }
    const log = this.log();
    fs.rmSync(this.folder, { recursive: true, force: true });
    if (this.process.exitCode !== 0) {
      throw new Error(`the server ended with ${this.process.exitCode ?? this.process.signalCode}; its log:\n${log}`);
    }
  }

  log() {
    return fs.readFileSync(path.join(this.folder, 'log'), 'utf8').split('\n').slice(-20).join('\n');
  }

  /** The administrator's connection, as this driver opens one. */
  async connectAdmin() {
    const options = { host: '127.0.0.1', port: this.port, username: 'admin', password: ADMIN_PASSWORD };
    const admin = new Tarantool({ ...options, lazyConnect: true, retryStrategy: null });
    await admin.connect();
    return admin;
  }
}

module.exports = { ADMIN_PASSWORD, Server, binary, environment, freePort };
