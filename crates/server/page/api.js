// Requests to the server: one token, exact numbers, problems as errors.
//
// The token lives in this tab's session storage and goes out in a header, never in a URL. All URLs are relative to the
// document, so the page works under any path prefix. An answer with an ETag is kept and asked for with If-None-Match.

const STORED_TOKEN = 'lycosa.token';

/** Marks long integers on their way through JSON.parse. Random, so that no payload can contain it by intent. */
const MARK = `exact-${crypto.getRandomValues(new Uint32Array(2)).join('-')}:`;

/** A string or a number of a JSON text. */
const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/** An integer that a double may not hold. */
const LONG = /^-?\d{16,}$/;
/** Digits of such an integer, perhaps: 16 in a row that are no part of a fraction. */
const PERHAPS_LONG = /(?<![.\d])\d{16}/;

/** Answers by URL: the ETag and the value that it stands for. */
const known = new Map();
const MAX_KNOWN = 32;

/** Until then answers are asked for fresh, since this page has changed something: milliseconds of the clock. */
let freshUntil = 0;
/** How old an answer may be, in seconds: open pages share the answers of a second. */
const MAX_AGE = 1;

/** What the server's clock is ahead of this one, in milliseconds. */
let skew = 0;

/** A refusal of the server (RFC 9457), or a request without an answer (`status` 0). */
export class Problem extends Error {
  constructor(status, { type = '', title = '', detail = '' } = {}) {
    super(detail || title || `HTTP status ${status}`);
    this.status = status;
    this.kind = type.replace('urn:lycosa:problem:', '');
  }
}

/** Reads JSON; integers that a double cannot hold become BigInt, so that none is rounded. */
export function parse(text) {
  // Most answers have none, and marking takes longer than reading.
  if (!PERHAPS_LONG.test(text)) return JSON.parse(text);
  const marked = text.replace(STRING_OR_NUMBER, (found) => (LONG.test(found) ? `"${MARK}${found}"` : found));
  return JSON.parse(marked, (_, value) => {
    if (typeof value !== 'string' || !value.startsWith(MARK)) return value;
    const exact = BigInt(value.slice(MARK.length));
    const rounded = Number(exact);
    return Number.isSafeInteger(rounded) ? rounded : exact;
  });
}

/** The number that a field of a form says, exact. */
export const numberOf = (text) => (/^\d{16,}$/.test(text) ? BigInt(text) : Number(text));

/** Writes JSON that may have BigInts, indented by `indent` blanks. */
export function stringify(value, indent = 0) {
  const marked = JSON.stringify(value, (_, member) => (typeof member === 'bigint' ? `${MARK}${member}` : member), indent);
  return marked.replaceAll(new RegExp(`"${MARK}(-?\\d+)"`, 'g'), '$1');
}

/** Seconds since the epoch by the server's clock. */
export function now() {
  return (Date.now() + skew) / 1000;
}

export function token() {
  return sessionStorage.getItem(STORED_TOKEN);
}

export function setToken(secret) {
  known.clear();
  if (secret) sessionStorage.setItem(STORED_TOKEN, secret);
  else sessionStorage.removeItem(STORED_TOKEN);
}

/** A path with its parts encoded: path`v1/tubes/${name}`. */
export function path(parts, ...names) {
  return parts.reduce((text, part, at) => text + encodeURIComponent(String(names[at - 1])) + part);
}

/**
 * @param {string} method
 * @param {string} place
 * @param {{body?: any, type?: string, signal?: AbortSignal}} [options]
 */
async function send(method, place, { body, type = 'application/json', signal } = {}) {
  const url = new URL(place, new URL('.', document.baseURI));
  const headers = new Headers();
  if (token()) headers.set('Authorization', `Bearer ${token()}`);
  if (body !== undefined) headers.set('Content-Type', type);
  const before = method === 'GET' ? known.get(url.href) : undefined;
  if (before) headers.set('If-None-Match', before.etag);
  if (method !== 'GET') freshUntil = Date.now() + 2000 * MAX_AGE;
  headers.set('Cache-Control', Date.now() < freshUntil ? 'no-cache' : `max-age=${MAX_AGE}`);
  const sent = body === undefined || type !== 'application/json' ? body : stringify(body);
  let response;
  try {
    response = await fetch(url, { method, headers, body: sent, signal, cache: 'no-store', credentials: 'omit' });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, { detail: 'The server does not answer.' });
  }
  const date = Date.parse(response.headers.get('Date') ?? '');
  // The header has whole seconds: a smaller difference is no difference.
  if (!Number.isNaN(date)) skew = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
  if (response.status === 304 && before) return before.value;
  const text = await response.text();
  const isJson = (response.headers.get('Content-Type') ?? '').includes('json');
  if (!response.ok && !(isJson && response.status === 503 && !text.includes('"type"'))) {
    throw new Problem(response.status, isJson ? parse(text) : { detail: text });
  }
  const value = isJson ? parse(text) : text;
  const etag = response.headers.get('ETag');
  if (method === 'GET' && etag) {
    if (known.size >= MAX_KNOWN) known.delete(known.keys().next().value);
    known.set(url.href, { etag, value });
  }
  return value;
}

export const get = (place, signal) => send('GET', place, { signal });
/** @param {AbortSignal} [signal] */
export const post = (place, body = {}, signal = undefined) => send('POST', place, { body, signal });
export const remove = (place) => send('DELETE', place);
