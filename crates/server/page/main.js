// The shell: routes, the refresh once a second, the token's form, the bar on top.
//
// A route stands in the fragment, so the server sees no names of tubes in its paths. Each screen has `load(route, signal)`,
// which asks the server, and `draw(route, data)`, which shows it. The refresh stops while the page is hidden, and while it is
// paused: only the button resumes it.

import { Component, h, render } from './vendor/preact.mjs';
import * as api from './api.js';
import { badge, getAccess, may, setAccess } from './access.js';
import { clock, duration } from './format.js';
import { Shortcuts, keys, onKey } from './shortcuts.js';
import { Empty, Foreign, Refusal, Told, onTold } from './ui.js';
import * as issues from './screens/issues.js';
import * as overview from './screens/overview.js';
import * as tubes from './screens/tubes.js';
import * as tube from './screens/tube.js';
import * as task from './screens/task.js';
import * as tasks from './screens/tasks.js';
import { allJobs, job, jobs } from './screens/jobs.js';
import * as audit from './screens/audit.js';
import * as instance from './screens/instance.js';
import * as log from './screens/log.js';
import * as sessions from './screens/sessions.js';
import * as settings from './screens/settings.js';
import * as tokens from './screens/tokens.js';

const PERIOD = 1000;

/** @type {[RegExp, any][]} */
const SCREENS = [
  [/^$/, overview],
  [/^issues$/, issues],
  [/^sessions$/, sessions],
  [/^instance$/, instance],
  [/^settings$/, settings],
  [/^log$/, log],
  [/^tokens$/, tokens],
  [/^audit$/, audit],
  [/^jobs$/, allJobs],
  [/^tubes$/, tubes],
  [/^tubes\/([^/]+)$/, tube],
  [/^tubes\/([^/]+)\/tasks$/, tasks],
  [/^tubes\/([^/]+)\/tasks\/(\d+)$/, task],
  [/^tubes\/([^/]+)\/jobs$/, jobs],
  [/^tubes\/([^/]+)\/jobs\/(\d+)$/, job],
];

/** Name, address, the places at which it is the present one, and the role that it needs.
 *  @type {[string, string, RegExp, string?][]} */
const BAR = [
  ['Overview', '#/', /^$/],
  ['Tubes', '#/tubes', /^tubes/],
  ['Issues', '#/issues', /^issues$/],
  ['Sessions', '#/sessions', /^sessions$/],
  ['Jobs', '#/jobs', /^jobs$/],
  ['Audit', '#/audit', /^audit$/],
  ['Instance', '#/instance', /^(instance|settings|log)$/],
  ['Tokens', '#/tokens', /^tokens$/, 'administrator'],
];

const page = {
  route: readRoute(),
  /** @type {any} */
  data: null,
  /** @type {any} */
  problem: null,
  /** When the last answer came, in milliseconds of this machine's clock. */
  answered: 0,
  isPaused: false,
  /** Whether the keys are listed. */
  isHelping: false,
  /** @type {any} */
  health: null,
};

/** @type {number | undefined} */
let timer;
/** @type {AbortController | null} */
let running = null;

function readRoute() {
  const [place, query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  for (const [pattern, screen] of SCREENS) {
    const match = pattern.exec(place);
    if (match) {
      let names;
      try {
        names = match.slice(1).map(decodeURIComponent);
      } catch {
        break;
      }
      return { place, screen, names, query: new URLSearchParams(query), setQuery, refresh };
    }
  }
  return { place, screen: null, names: [], query: new URLSearchParams(query), setQuery, refresh };
}

/** Changes parameters of the query, which is part of the address; empty ones go. Lists that follow are read anew. */
function setQuery(changes, { isStep = false } = {}) {
  const query = new URLSearchParams(page.route.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === '' || value === null || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const hash = `#/${page.route.place}${query.size ? `?${query}` : ''}`;
  history[isStep ? 'pushState' : 'replaceState'](null, '', hash);
  page.route = readRoute();
  draw();
  refresh();
}

async function loadShell(signal) {
  page.health = await api.get('health', signal);
  if (!getAccess()) setAccess(await api.get('v1/token', signal));
}

/** Asks for everything that is shown, once. */
async function refresh() {
  clearTimeout(timer);
  running?.abort();
  const { route } = page;
  const mine = new AbortController();
  running = mine;
  if (api.token() && route.screen) {
    try {
      await loadShell(mine.signal);
      const data = await route.screen.load(route, mine.signal);
      if (running !== mine) return;
      Object.assign(page, { data, problem: null, answered: Date.now() });
    } catch (problem) {
      if (running !== mine || mine.signal.aborted) return;
      if (problem.status === 401) {
        forgetToken(problem);
        return;
      }
      if (!(problem instanceof api.Problem)) console.error(problem);
      page.problem = problem;
    }
  }
  draw();
  schedule();
}

function schedule() {
  clearTimeout(timer);
  if (!page.isPaused && !document.hidden && api.token()) timer = setTimeout(refresh, PERIOD);
}

function navigate(event) {
  page.route = readRoute();
  Object.assign(page, { data: null, problem: null });
  draw();
  refresh();
  // The first screen leaves the focus to the browser.
  if (event) document.getElementById('main')?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function forgetToken(problem = null) {
  api.setToken(null);
  setAccess(null);
  Object.assign(page, { data: null, health: null, problem });
  draw();
}

function setPaused(isPaused) {
  page.isPaused = isPaused;
  draw();
  if (isPaused) {
    clearTimeout(timer);
    running?.abort();
    running = null;
  } else {
    refresh();
  }
}

class TokenForm extends Component {
  render({ problem }) {
    const submit = (event) => {
      event.preventDefault();
      const secret = event.target.elements.token.value.trim();
      if (!secret) return;
      api.setToken(secret);
      page.problem = null;
      refresh();
    };
    return h(
      'form',
      { class: 'token panel', onSubmit: submit },
      h('h1', null, 'Token'),
      h(
        'label',
        null,
        h('span', null, 'The secret of a token'),
        h('input', { name: 'token', type: 'password', autocomplete: 'off', spellcheck: false, required: true, autofocus: true }),
      ),
      problem && h(Refusal, { problem }),
      h('p', { class: 'buttons' }, h('button', { class: 'act main', type: 'submit' }, 'Open')),
      h('p', { class: 'hint' }, 'Make one at a terminal of the server: ', h('code', null, 'lycosa token add me --role viewer')),
      h('p', { class: 'hint' }, 'This tab keeps it until it is closed. It never stands in an address.'),
    );
  }
}

function Health({ health }) {
  if (!health) return null;
  if (health.ready) return h('span', { class: 'health ok' }, h('i', { 'aria-hidden': 'true' }), 'ready');
  const why = health.reasons.map(({ detail }) => detail).join('; ');
  // A replica takes no writes by intent: that is no fault.
  const isQuiet = health.reasons.every(({ reason }) => reason === 'read_only');
  return h('span', { class: `health ${isQuiet ? 'quiet' : 'bad'}`, title: why }, h('i', { 'aria-hidden': 'true' }), health.read_only ? 'read-only' : 'not ready');
}

const barOfToken = () => BAR.filter(([, , , role]) => !role || may(role));

function help(isHelping) {
  page.isHelping = isHelping;
  draw();
}

function Bar() {
  const links = barOfToken().map(([name, href, pattern]) =>
    h('a', { href, 'aria-current': pattern.test(page.route.place) ? 'page' : undefined, key: name }, name),
  );
  return h(
    'header',
    null,
    h('a', { class: 'brand', href: '#/' }, h('img', { src: 'page/icon.svg', alt: '', width: 24, height: 24 }), 'Lycosa'),
    badge() && h('strong', { class: `environment ${badge().color}` }, h(Foreign, { text: badge().text })),
    api.token() && h('nav', { 'aria-label': 'Screens' }, links),
    api.token() &&
      h(
        'div',
        { class: 'controls' },
        h(Health, { health: page.health }),
        h(
          'button',
          { type: 'button', class: page.isPaused ? 'paused' : '', 'aria-pressed': String(page.isPaused), onClick: () => setPaused(!page.isPaused) },
          page.isPaused ? 'Paused: resume' : 'Pause refresh',
        ),
      ),
  );
}

/** Says that what is shown is old. */
function Stale() {
  const { problem, data } = page;
  if (!problem || !data) return null;
  const age = duration(Math.floor((Date.now() - page.answered) / 1000));
  return h('p', { class: 'stale', role: 'alert' }, h(Foreign, { text: problem.message }), ` What is shown is ${age} old.`);
}

/** The title of a screen without the name of the program. */
const titleOf = (route) => route.screen.title(route).replace(/ · Lycosa$/, '');

function Screen() {
  const { route, data, problem } = page;
  if (!api.token()) return h(TokenForm, { problem });
  if (!route.screen) return h(Empty, { kind: 'none' }, 'No screen has this address. ', h('a', { href: '#/' }, 'Overview'));
  if (data) return route.screen.draw({ ...route, health: page.health }, data);
  if (problem) return [h('h1', null, titleOf(route)), h(Refusal, { problem })];
  return h('p', { class: 'loading' }, 'Loading…');
}

function Foot() {
  const { health } = page;
  const access = getAccess();
  const toggle = () => {
    clock.toggle();
    draw();
  };
  return h(
    'footer',
    null,
    health && h('span', null, `Lycosa ${health.version}, up for ${duration(Math.floor(health.uptime_seconds))}`),
    h('button', { type: 'button', onClick: toggle }, clock.isUtc ? 'Times on hover in UTC' : 'Times on hover in local time'),
    access && h('span', { class: 'who' }, 'Token ', h(Foreign, { text: access.name }), ` (${access.role})`),
    api.token() && h('button', { type: 'button', onClick: () => help(true) }, 'Keys'),
    api.token() && h('button', { type: 'button', onClick: () => forgetToken() }, 'Forget token'),
  );
}

function draw() {
  const title = page.route.screen?.title?.(page.route) ?? 'Lycosa';
  const named = badge() ? `${badge().text} · ${title}` : title;
  document.title = page.health && !page.health.ready ? `(!) ${named}` : named;
  render(
    [
      h('a', { class: 'skip', href: '#main', onClick: skip }, 'Skip to the content'),
      h(Bar, {}),
      h('main', { id: 'main', tabIndex: -1 }, h(Stale, {}), h(Screen, { key: page.route.place })),
      h(Foot, {}),
      h(Told, {}),
      page.isHelping &&
        h(Shortcuts, {
          places: barOfToken().map(([name]) => name),
          onClose: () => help(false),
          onToggle: () => {
            keys.toggle();
            draw();
          },
        }),
    ],
    document.getElementById('page'),
  );
}

/** The fragment is the route, so the link moves the focus itself. */
function skip(event) {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

onTold(draw);
window.addEventListener('hashchange', navigate);
document.addEventListener('keydown', (event) => {
  if (!api.token()) return;
  const go = (name) => {
    const found = barOfToken().find(([title]) => title === name);
    if (found) location.hash = found[1];
  };
  onKey(event, { help: () => help(true), pause: () => setPaused(!page.isPaused), refresh, go });
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden) clearTimeout(timer);
  else if (!page.isPaused) refresh();
});
navigate();
