// MessagePack in a notation that people read: JSON where JSON can say it, and what it cannot say as `b64'…'`, `ext(type, b64'…')`,
// `NaN` and keys of any kind. Values are read with a bound on their depth; malformed bytes show as far as they were read.

const MAX_DEPTH = 64;

class Source {
  constructor(bytes) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.bytes = bytes;
    this.at = 0;
  }

  take(count) {
    if (this.at + count > this.bytes.length) throw new RangeError('the value ends early');
    this.at += count;
    return this.at - count;
  }

  uint(size) {
    const at = this.take(size);
    if (size === 1) return this.view.getUint8(at);
    if (size === 2) return this.view.getUint16(at);
    if (size === 4) return this.view.getUint32(at);
    return this.view.getBigUint64(at);
  }

  int(size) {
    const at = this.take(size);
    if (size === 1) return this.view.getInt8(at);
    if (size === 2) return this.view.getInt16(at);
    if (size === 4) return this.view.getInt32(at);
    return this.view.getBigInt64(at);
  }

  slice(length) {
    const at = this.take(length);
    return this.bytes.subarray(at, at + length);
  }
}

function base64(bytes) {
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return `b64'${btoa(text)}'`;
}

function text(bytes) {
  try {
    return JSON.stringify(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return `str(${base64(bytes)})`;
  }
}

function float(number) {
  return Number.isInteger(number) ? `${Object.is(number, -0) ? '-0' : number}.0` : String(number);
}

/** Members of an array or a map, a line each, indented. */
function list(count, depth, open, close, read) {
  if (count === 0) return open + close;
  if (depth >= MAX_DEPTH) throw new RangeError(`values are nested more than ${MAX_DEPTH} times`);
  const indent = '  '.repeat(depth + 1);
  const items = [];
  for (let number = 0; number < count; number += 1) items.push(indent + read());
  return `${open}\n${items.join(',\n')}\n${'  '.repeat(depth)}${close}`;
}

const array = (source, count, depth) => list(count, depth, '[', ']', () => value(source, depth + 1));
const map = (source, count, depth) => list(count, depth, '{', '}', () => `${value(source, depth + 1)}: ${value(source, depth + 1)}`);

function ext(source, length) {
  const type = source.int(1);
  return `ext(${type}, ${base64(source.slice(length))})`;
}

function value(source, depth) {
  const lead = source.uint(1);
  if (lead < 0x80) return String(lead);
  if (lead < 0x90) return map(source, lead & 0xf, depth);
  if (lead < 0xa0) return array(source, lead & 0xf, depth);
  if (lead < 0xc0) return text(source.slice(lead & 0x1f));
  if (lead >= 0xe0) return String(lead - 0x100);
  switch (lead) {
    case 0xc0: return 'null';
    case 0xc2: return 'false';
    case 0xc3: return 'true';
    case 0xc4: case 0xc5: case 0xc6: return base64(source.slice(source.uint(1 << (lead - 0xc4))));
    case 0xc7: case 0xc8: case 0xc9: return ext(source, source.uint(1 << (lead - 0xc7)));
    case 0xca: return float(source.view.getFloat32(source.take(4)));
    case 0xcb: return float(source.view.getFloat64(source.take(8)));
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return String(source.uint(1 << (lead - 0xcc)));
    case 0xd0: case 0xd1: case 0xd2: case 0xd3: return String(source.int(1 << (lead - 0xd0)));
    case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return ext(source, 1 << (lead - 0xd4));
    case 0xd9: case 0xda: case 0xdb: return text(source.slice(source.uint(1 << (lead - 0xd9))));
    case 0xdc: case 0xdd: return array(source, source.uint(lead === 0xdc ? 2 : 4), depth);
    case 0xde: case 0xdf: return map(source, source.uint(lead === 0xde ? 2 : 4), depth);
    default: throw new RangeError(`no value begins with 0x${lead.toString(16)}`);
  }
}

/** The value in words, or why the bytes are none. */
export function diagnose(bytes) {
  const source = new Source(bytes);
  try {
    const shown = value(source, 0);
    const rest = bytes.length - source.at;
    return rest > 0 ? `${shown}\n… and ${rest} more bytes` : shown;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return `no MessagePack value, at byte ${source.at}: ${error.message}`;
  }
}
