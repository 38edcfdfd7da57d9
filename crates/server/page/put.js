// The form that puts a task, with every option that the tube's type knows.

import { Component, h } from './vendor/preact.mjs';
import { Problem, get, numberOf, parse, path, post, stringify } from './api.js';
import { may } from './access.js';
import { isTimed } from './tubes.js';
import { Field, Refusal, tell, to } from './ui.js';

/** Seconds that make sense as an option. */
const SECONDS = { type: 'number', min: 0, step: 'any' };

/** `copied`: the id of a task whose payload and options the form has at first, so that a person may mend and put them. */
export class PutForm extends Component {
  constructor(props) {
    super(props);
    this.state = { kind: 'json', problem: null, isBusy: false };
  }

  async componentDidMount() {
    const { tube, copied } = this.props;
    if (!copied || !this.form) return;
    try {
      const task = await get(path`v1/tubes/${tube.name}/tasks/${copied}`);
      const { kind, text } = textOf(task);
      const fields = this.form.elements;
      fields.payload.value = text;
      for (const name of ['ttl', 'ttr', 'pri', 'utube']) if (fields[name] && task[name] !== undefined) fields[name].value = task[name];
      this.setState({ kind });
      fields.payload.focus();
      fields.payload.setSelectionRange(0, 0);
    } catch (problem) {
      this.setState({ problem });
    }
  }

  async put(form) {
    const { tube, after } = this.props;
    const fields = form.elements;
    const { kind } = this.state;
    this.setState({ isBusy: true, problem: null });
    try {
      const task = payloadOf(kind, fields.payload.value);
      for (const name of ['delay', 'ttl', 'ttr', 'pri']) {
        if (fields[name]?.value) task[name] = numberOf(fields[name].value);
      }
      if (fields.utube?.value) task.utube = fields.utube.value;
      const { id, state } = await post(path`v1/tubes/${tube.name}/tasks`, task);
      tell(`Task ${id} is ${state}.`, { name: 'Open', href: to`#/tubes/${tube.name}/tasks/${id}` });
      this.setState({ isBusy: false });
      after();
    } catch (problem) {
      this.setState({ isBusy: false, problem });
    }
  }

  render({ tube, copied }, { kind, problem, isBusy }) {
    if (!may('operator', tube.name)) return null;
    const submit = (event) => {
      event.preventDefault();
      this.put(event.target);
    };
    const timed = isTimed(tube.type);
    return h(
      'form',
      { class: 'panel', onSubmit: submit, ref: (form) => { this.form = form; } },
      h('h2', null, copied ? `Put a copy of task ${copied}` : 'Put a task'),
      h(
        'fieldset',
        { class: 'choice' },
        h('legend', null, 'The payload is'),
        [
          ['json', 'JSON'],
          ['text', 'text'],
          ['base64', 'bytes in base64'],
        ].map(([value, name]) =>
          h(
            'label',
            { class: 'inline', key: value },
            h('input', { type: 'radio', name: 'kind', value, checked: kind === value, onChange: () => this.setState({ kind: value }) }),
            h('span', null, name),
          ),
        ),
      ),
      h(Field, { name: 'Payload' }, h('textarea', { name: 'payload', rows: copied ? 10 : 4, spellcheck: false })),
      timed &&
        h(
          'div',
          { class: 'fields' },
          h(Field, { name: 'Delay', hint: 'seconds' }, h('input', { name: 'delay', ...SECONDS })),
          h(Field, { name: 'ttl', hint: 'seconds to live' }, h('input', { name: 'ttl', ...SECONDS })),
          h(Field, { name: 'ttr', hint: 'seconds to run' }, h('input', { name: 'ttr', ...SECONDS })),
          h(Field, { name: 'Priority', hint: 'lower first' }, h('input', { name: 'pri', type: 'number', min: 0, step: 1 })),
        ),
      tube.type.startsWith('utube') && h(Field, { name: 'Sub-queue' }, h('input', { name: 'utube' })),
      problem && h(Refusal, { problem }),
      h('p', { class: 'buttons' }, h('button', { type: 'submit', class: 'act main', disabled: isBusy }, 'Put')),
    );
  }
}

/** The payload of a task as the form takes it. */
function textOf(task) {
  if (task.payload_base64 !== undefined) return { kind: 'base64', text: task.payload_base64 };
  if (!('payload' in task)) throw new Problem(400, { detail: 'The payload is MessagePack that JSON cannot say: the form cannot have it.' });
  return typeof task.payload === 'string' ? { kind: 'text', text: task.payload } : { kind: 'json', text: stringify(task.payload, 2) };
}

function payloadOf(kind, text) {
  if (kind === 'text') return { payload: text };
  if (kind === 'base64') return { payload_base64: text.trim() };
  try {
    return { payload: parse(text) };
  } catch (error) {
    throw new Problem(400, { detail: `The payload is no JSON: ${error.message}` });
  }
}
