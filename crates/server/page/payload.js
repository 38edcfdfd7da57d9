// A task's payload as JSON, text, MessagePack or hexadecimal digits, shown up to a bound.

import { Component, h } from './vendor/preact.mjs';
import { hidesPayloads } from './access.js';
import { get, path, stringify } from './api.js';
import { bytes } from './format.js';
import { diagnose } from './msgpack.js';
import { Copy, Foreign, Refusal } from './ui.js';

/** Characters and bytes that are shown at first. */
const SHOWN = 64 * 1024;
const HEX_WIDTH = 16;

function decode(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/** Lines of an address, the bytes as hexadecimal digits, and the printable ones. */
function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += HEX_WIDTH) {
    const row = [...data.subarray(at, at + HEX_WIDTH)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const printable = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.')).join('');
    lines.push(`${at.toString(16).padStart(8, '0')}  ${digits.padEnd(HEX_WIDTH * 3 - 1)}  ${printable}`);
  }
  return lines.join('\n');
}

/** The view of the MessagePack itself, which is asked for when a person wants it. */
const STORED = 'MessagePack';

/** The ways to show a payload: name and text. */
function views(task, stored) {
  if ('payload' in task) {
    const { payload } = task;
    const shown = [['JSON', stringify(payload, 2)]];
    const isText = typeof payload === 'string';
    if (isText) shown.unshift(['text', payload]);
    const data = new TextEncoder().encode(isText ? payload : shown[0][1]);
    const packed = stored === null ? 'Asking the server…' : `${hex(stored.subarray(0, SHOWN))}\n\n${diagnose(stored)}`;
    return { shown: [...shown, [STORED, packed], ['hex', hex(data.subarray(0, SHOWN))]], size: data.length };
  }
  const data = decode(task.payload_base64 ?? task.payload_msgpack);
  const shown = [['hex', hex(data.subarray(0, SHOWN))]];
  if (task.payload_msgpack !== undefined) shown.unshift(['MessagePack', diagnose(data)]);
  if (task.payload_base64 !== undefined) shown.push(['text', new TextDecoder().decode(data)]);
  shown.push(['base64', task.payload_base64 ?? task.payload_msgpack]);
  return { shown, size: data.length };
}

export class Payload extends Component {
  constructor(props) {
    super(props);
    /** @type {Record<string, any>} */
    this.state = { name: null, isWhole: false, isOpen: !hidesPayloads(), stored: null, problem: null };
  }

  async choose(name) {
    this.setState({ name, problem: null });
    const { tube, task } = this.props;
    if (name !== STORED || !('payload' in task) || this.state.stored !== null) return;
    try {
      const { payload_msgpack: packed } = await get(path`v1/tubes/${tube}/tasks/${task.id}?payload=msgpack`);
      this.setState({ stored: decode(packed) });
    } catch (problem) {
      this.setState({ name: null, problem });
    }
  }

  render({ task }, { name, isWhole, isOpen, stored, problem }) {
    if (!isOpen) {
      return h(
        'section',
        { class: 'panel payload' },
        h('h2', null, 'Payload'),
        h('p', { class: 'hint' }, 'Hidden by the setting http.hide_payloads.'),
        h('p', null, h('button', { type: 'button', onClick: () => this.setState({ isOpen: true }) }, 'Show the payload')),
      );
    }
    const { shown, size } = views(task, stored);
    const [current, text] = shown.find(([one]) => one === name) ?? shown[0];
    const isCut = !isWhole && text.length > SHOWN;
    const kind = task.payload_msgpack !== undefined ? 'MessagePack' : task.payload_base64 !== undefined ? 'bytes' : null;
    return h(
      'section',
      { class: 'panel payload' },
      h('h2', null, 'Payload ', h('small', null, [kind, bytes(size)].filter(Boolean).join(', '))),
      h(
        'div',
        { class: 'tools', role: 'group', 'aria-label': 'Show the payload as' },
        shown.map(([one]) =>
          h(
            'button',
            { type: 'button', key: one, 'aria-pressed': String(one === current), onClick: () => this.choose(one) },
            one,
          ),
        ),
        h(Copy, { text }),
      ),
      problem && h(Refusal, { problem }),
      h('pre', { tabIndex: 0, 'aria-label': 'Payload' }, h(Foreign, { text: isCut ? text.slice(0, SHOWN) : text, lines: true })),
      isCut && h('p', null, h('button', { type: 'button', onClick: () => this.setState({ isWhole: true }) }, `Show all ${bytes(text.length)}`)),
    );
  }
}
