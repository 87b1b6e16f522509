"""Access: users, policies, changes of both, and whether somebody may do something."""

from typing import Final

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin import access as admin_access
from roquet.dashboard.changes import change, done, form_text
from roquet.dashboard.facts import access
from roquet.dashboard.facts.access import AccessAnswer, AccessFacts
from roquet.dashboard.form_fields import text_of
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of
from roquet.model.access import Action, PolicyType, ResourceType, UserStatus, UserType
from roquet.model.errors import CallRefused, NotFound, RoquetError, UsageError
from roquet.model.settings import suggest
from roquet.wire.call import Call, Reply

QUESTION: Final = ("user", "action", "resource", "source")
"""Fields of the question whether somebody may do something."""


async def overview(request: Request) -> Response:
    """Users, policies, and the answer to a question in the address."""
    admin = admin_of(request)
    facts: AccessFacts | None = None
    try:
        facts = await access.overview(admin)
    except CallRefused as error:
        if not access.is_switched_off(error):
            raise
    question = {name: text_of(request.query_params, name) or "" for name in QUESTION}
    answer: AccessAnswer | None = None
    wrong = ""
    if question["user"] and facts is not None:
        try:
            answer = await access.may(
                admin,
                question["user"],
                question["action"],
                question["resource"],
                question["source"] or "127.0.0.1",
            )
        except RoquetError as error:
            wrong = str(error)
    return page(
        request,
        "access.html",
        only_html={
            "question": question,
            "actions": [*Action],
            "kinds": [*ResourceType],
            "policy_types": [*PolicyType],
            "user_types": [*UserType],
        },
        facts=facts,
        is_off=facts is None,
        answer=answer,
        wrong=wrong,
    )


@change("user.save")
async def save_user(request: Request, form: FormData) -> Response:
    """Create a user, or change its password, type or status; what is left empty stays."""
    name = form_text(form, "user")
    is_new = _choice(form, "kind", ("create", "change")) == "create"
    password = form.get("password")
    secret = password if isinstance(password, str) and password else None
    if is_new and secret is None:
        raise UsageError("a new user needs a password")
    user_type, status = form_text(form, "user_type", ""), form_text(form, "status", "")
    call = admin_access.user_call(
        name,
        create=is_new,
        password=secret,
        user_type=_one_of(user_type, [*UserType]),
        status=_one_of(status, [*UserStatus]),
    )
    await _check_user(request, name, exists=not is_new)
    return await _change(request, call, f"user {name} {'created' if is_new else 'changed'}")


@change("user.delete")
async def delete_user(request: Request, form: FormData) -> Response:
    """Delete a user and its policies; its name has to be typed."""
    name = form_text(form, "user")
    if form_text(form, "confirm", "") != name:
        raise UsageError(f"type the name {name!r} to delete the user")
    await _check_user(request, name)
    return await _change(request, admin_access.delete_user_call(name), f"user {name} deleted")


@change("policy.save")
async def save_policy(request: Request, form: FormData) -> Response:
    """Add an entry to a user's policies, in the place of one with the same resource."""
    name = form_text(form, "user")
    resource = form_text(form, "resource")
    entry = access.entry_info(
        resource,
        [str(action) for action in form.getlist("actions")],
        form_text(form, "sources", "").replace(",", " ").split(),
        deny=_choice(form, "decision", ("Allow", "Deny")) == "Deny",
    )
    call = admin_access.policy_call(name, [entry], _policy_type(form), create=False)
    await _check_user(request, name)
    return await _change(request, call, f"policy of {name} for {resource} saved")


@change("policy.delete")
async def delete_policy(request: Request, form: FormData) -> Response:
    """Delete the entry of a resource."""
    name, resource = form_text(form, "user"), form_text(form, "resource")
    call = admin_access.delete_policy_call(name, resource, _policy_type(form))
    await _check_user(request, name)
    return await _change(request, call, f"policy of {name} for {resource} deleted")


async def _check_user(request: Request, name: str, *, exists: bool = True) -> None:
    """Raise NotFound for an unknown user, or UsageError for one that is to be new.

    Brokers delete unknown users with success. One that lists no users to this visitor decides.
    """
    try:
        known = [user.name for user in (await access.overview(admin_of(request))).users]
    except CallRefused:
        return
    if exists and name not in known:
        raise NotFound(f"there is no user {name!r}{suggest(name, known)}")
    if name in known and not exists:
        raise UsageError(f"there is a user {name!r} already")


async def _change(request: Request, call: Call[Reply], text: str) -> Response:
    admin = admin_of(request)
    brokers = await admin_access.every_broker(admin)
    names = await admin_access.change(admin, brokers, call)
    return done(request, "/access", f"{text}, on {', '.join(names)}")


def _choice(form: FormData, name: str, known: tuple[str, ...]) -> str:
    """The value of a field without a default. Raises UsageError where nothing is chosen."""
    value = form_text(form, name, "")
    if value not in known:
        raise UsageError(f"choose one for {name}: {' or '.join(known)}")
    return value


def _one_of(text: str, known: list[str]) -> str | None:
    """One of some words, or None for an empty text. Raises UsageError for another one."""
    if text and text not in known:
        raise UsageError(f"{text!r:.100} is none of {', '.join(known)}")
    return text or None


def _policy_type(form: FormData) -> PolicyType:
    text = form_text(form, "policy", str(PolicyType.CUSTOM))
    return PolicyType(_one_of(text, [str(kind) for kind in PolicyType]) or text)


ROUTES = [
    Route("/access", overview),
    Route("/access/users", save_user, methods=["POST"]),
    Route("/access/users/delete", delete_user, methods=["POST"]),
    Route("/access/policies", save_policy, methods=["POST"]),
    Route("/access/policies/delete", delete_policy, methods=["POST"]),
]
