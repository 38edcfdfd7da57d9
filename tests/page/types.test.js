'use strict';
// TypeScript over the page's scripts: names that do not exist, wrong numbers of arguments, members of nothing.
//
// Preact is a minified file without types, so a copy of the page is checked in which declarations stand in its place.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { before, it } = require('node:test');

const PAGE = path.resolve(__dirname, '../../crates/server/page');

const OPTIONS = {
  allowJs: true,
  checkJs: true,
  noEmit: true,
  strict: true,
  noImplicitAny: false,
  // Fetched data have no declared shape, and neither have elements of forms.
  useUnknownInCatchVariables: false,
  noUnusedLocals: true,
  noFallthroughCasesInSwitch: true,
  target: 'es2022',
  module: 'esnext',
  moduleResolution: 'bundler',
  lib: ['es2023', 'dom', 'dom.iterable'],
  types: [],
};

/** A script of the page's folder with three mistakes. */
const WRONG = `import { absolute } from './format.js';
import { nowhere } from './format.js';
export const wrong = () => [absolute(1, 2), nothing, nowhere];
`;

/** What TypeScript says, a line for each error: about the page, and about the wrong script beside it. One check serves both tests. */
function check() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'lycosa-types-'));
  try {
    fs.cpSync(PAGE, folder, { recursive: true });
    fs.rmSync(path.join(folder, 'vendor/preact.mjs'));
    fs.copyFileSync(path.join(__dirname, 'types/preact.d.mts'), path.join(folder, 'vendor/preact.d.mts'));
    fs.writeFileSync(path.join(folder, 'wrong.js'), WRONG);
    fs.writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: OPTIONS, include: ['**/*.js', '**/*.mts'] }));
    const tsc = require.resolve('typescript/lib/tsc.js');
    const checked = spawnSync(process.execPath, [tsc, '--project', folder, '--pretty', 'false'], { encoding: 'utf8' });
    const said = checked.stdout.split('\n').filter(Boolean);
    const isWrong = (line) => line.includes('wrong.js(');
    return { page: said.filter((line) => !isWrong(line)), wrong: said.filter(isWrong) };
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

let checked;
before(() => {
  checked = check();
});

it('the page’s scripts fit together', () => {
  assert.deepEqual(checked.page, []);
});

it('the check of types sees a name that does not exist, an export that does not, and an argument too many', () => {
  const sees = (code, word) => checked.wrong.some((line) => line.includes(code) && line.includes(word));
  assert.ok(sees('TS2304', 'nothing') && sees('TS2305', 'nowhere') && sees('TS2554', ''), checked.wrong.join('\n'));
});
