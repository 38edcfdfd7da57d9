'use strict';
// The client `tarantool-driver`: schema by names, rows, calls, errors, the life of a task, many consumers.

const assert = require('node:assert/strict');
const { after, before, describe, it } = require('node:test');

const Tarantool = require('tarantool-driver');

const { ADMIN_PASSWORD, Server } = require('./server');

describe('tarantool-driver', () => {
  let server;
  let client;

  const connect = (options = {}) =>
    new Tarantool({ host: '127.0.0.1', port: server.port, lazyConnect: true, retryStrategy: null, ...options });

  before(async () => {
    server = await Server.start();
    client = connect();
    await client.connect();
  });

  after(async () => {
    client.disconnect();
    await server.stop();
  });

  it('answers a ping', async () => {
    assert.equal(await client.ping(), true);
  });

  it('finds spaces and indexes by their names', async () => {
    await client.insert(280, [600, 1, 'people', 'memtx', 0, {}, [{ name: 'id', type: 'unsigned' }]]);
    await client.insert(288, [600, 0, 'primary', 'tree', { unique: true }, [[0, 'unsigned']]]);
    await client.insert(288, [600, 1, 'name', 'tree', { unique: true }, [[1, 'string']]]);
    assert.deepEqual(await client.insert('people', [1, 'ada', { born: 1815 }]), [[1, 'ada', { born: 1815 }]]);
    assert.deepEqual(await client.insert('people', [2, 'grace']), [[2, 'grace']]);
    assert.deepEqual(await client.select('people', 'name', 1, 0, 'eq', ['grace']), [[2, 'grace']]);
    assert.deepEqual(await client.select('people', 'primary', 1, 1, 'ge', [1]), [[2, 'grace']]);
  });

  it('changes rows', async () => {
    assert.deepEqual(await client.update('people', 'primary', [2], [['=', 1, 'grace h.']]), [[2, 'grace h.']]);
    assert.deepEqual(await client.replace('people', [2, 'hopper', 7]), [[2, 'hopper', 7]]);
    await client.upsert('people', [['+', 2, 1]], [2, 'hopper', 0]);
    assert.deepEqual(await client.select('people', 'primary', 1, 0, 'eq', [2]), [[2, 'hopper', 8]]);
    assert.deepEqual(await client.delete('people', 'name', ['hopper']), [[2, 'hopper', 8]]);
  });

  it('gives errors their codes and texts', async () => {
    await assert.rejects(client.insert('people', [1, 'eve']), /Duplicate key exists in unique index 'primary'/);
    await assert.rejects(client.call('no.such.function'), /Procedure 'no\.such\.function' is not defined/);
  });

  it('authenticates', async () => {
    const admin = connect({ username: 'admin', password: ADMIN_PASSWORD });
    await admin.connect();
    await admin.call('box.schema.user.create', 'bob', { password: 'secret' });
    admin.disconnect();

    const bob = connect({ username: 'bob', password: 'secret' });
    await bob.connect();
    await assert.rejects(bob.call('queue.statistics'), /denied for user 'bob'/);
    bob.disconnect();
  });

  it('leads a task through its life', async () => {
    await client.call('queue.create_tube', 'jobs', 'fifottl', { if_not_exists: true });
    const [task] = await client.call('queue.tube.jobs:put', { do: 'it' }, { ttl: 60, pri: 1 });
    assert.deepEqual(task, [0, 'r', { do: 'it' }]);
    assert.deepEqual(await client.call('queue.tube.jobs:take', 1), [[0, 't', { do: 'it' }]]);
    assert.deepEqual(await client.call('queue.tube.jobs:release', 0, {}), [[0, 'r', { do: 'it' }]]);
    assert.deepEqual(await client.call('queue.tube.jobs:bury', 0), [[0, '!', { do: 'it' }]]);
    // This client calls by CALL_16, which makes a row of each value.
    assert.deepEqual(await client.call('queue.tube.jobs:kick', 5), [[1]]);
    assert.deepEqual(await client.call('queue.tube.jobs:take', 0), [[0, 't', { do: 'it' }]]);
    assert.deepEqual(await client.call('queue.tube.jobs:ack', 0), [[0, '-', { do: 'it' }]]);
    await assert.rejects(client.call('queue.tube.jobs:ack', 0), /Task was not taken$/);
    assert.deepEqual(await client.call('queue.tube.jobs:take', 0), []);
  });

  it('lets fifty consumers on one connection do each task once', async () => {
    const count = 1000;
    await client.call('queue.create_tube', 'many', 'fifo');
    const done = [];
    const consume = async () => {
      for (;;) {
        const [task] = await client.call('queue.tube.many:take', 1);
        if (task === undefined) return;
        done.push(task[2]);
        await client.call('queue.tube.many:ack', task[0]);
      }
    };
    const consumers = Array.from({ length: 50 }, consume);
    await Promise.all(Array.from({ length: count }, (_, number) => client.call('queue.tube.many:put', number)));
    await Promise.all(consumers);
    done.sort((a, b) => a - b);
    assert.deepEqual(done, Array.from({ length: count }, (_, number) => number));
  });
});
