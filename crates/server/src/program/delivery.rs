//! Delivery: fibers begin for what clients ask of a program, and for the triggers of sessions, tubes and spaces.

use std::time::Instant;

use lycosa_iproto::error::ErrorObject;
use lycosa_lua::{Runtime, SessionEvent};
use lycosa_queue::TaskEvent;

use super::Program;
use crate::slow_lane::QUANTUM;

impl Program {
    /// Whether requests of clients wait that may begin.
    pub(super) fn may_begin_requests(&self, runtime: &Runtime) -> bool {
        self.core.get().is_some_and(|core| {
            core.instance.borrow().may_begin_invoke(|share| runtime.may_begin_request(share))
        })
    }

    /// Starts fibers for what clients ask and for the triggers of sessions.
    pub(super) fn deliver(&self, runtime: &Runtime) {
        loop {
            let session = self.sessions.borrow_mut().pop_front();
            let Some((caller, peer, event)) = session else { break };
            if let Err(error) = runtime.run_session_triggers(caller, peer, event.clone()) {
                let text = error.message(runtime.main());
                tracing::error!("session triggers did not run: {text}");
                if let Some(core) = self.core.get() {
                    let (mut instance, refusal) = (core.instance.borrow_mut(), Err(ErrorObject::lua(text)));
                    match event {
                        SessionEvent::Begin => instance.finish_begin(caller.session, refusal),
                        SessionEvent::Login { .. } => instance.finish_login(caller.session, refusal),
                        SessionEvent::End => {}
                    }
                    core.end.notify_one();
                }
            }
        }
        for (caller, error) in self.denied.take() {
            let peer = self.peers.borrow().get(&caller.session).cloned().unwrap_or_default();
            if let Err(error) = runtime.run_denied(caller, peer, error) {
                tracing::error!("on_access_denied triggers did not run: {}", error.message(runtime.main()));
            }
        }
        let changes = self.changes.take();
        if !changes.is_empty()
            && let Err(error) = runtime.run_replaced(changes)
        {
            tracing::error!("on_replace triggers did not run: {}", error.message(runtime.main()));
        }
        loop {
            let event = self.events.borrow_mut().pop_front();
            let Some(TaskEvent { tube, operation, tuple }) = event else { break };
            if let Err(error) = runtime.run_task_callback(tube, operation.name().to_owned(), tuple) {
                tracing::error!("on_task_change did not run: {}", error.message(runtime.main()));
            }
        }
        begin_requests(self, runtime);
    }
}

/// Starts fibers for requests of clients, for a millisecond at most; further requests stay in their line. A stack that is new takes
/// some 50 µs.
fn begin_requests(program: &Program, runtime: &Runtime) {
    let began = Instant::now();
    let Some(core) = program.core.get() else { return };
    while began.elapsed() < QUANTUM {
        let next = core.instance.borrow_mut().poll_invoke(|share| runtime.may_begin_request(share));
        let Some(invoke) = next else { return };
        let (request, session) = (invoke.request, invoke.caller.session);
        let peer = program.peers.borrow().get(&session).cloned().unwrap_or_default();
        if let Err(error) = runtime.run_invoke(invoke, peer) {
            let text = error.message(runtime.main());
            core.instance.borrow_mut().finish_invoke(request, Err(ErrorObject::lua(text)));
            core.end.notify_one();
        }
    }
}
